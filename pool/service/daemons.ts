// What daemons say: enrolment and readiness, and what the server says of their connections.
import {
  controlSubject,
  EnrolRequest,
  encode,
  encodingOf,
  isReplyFor,
  NotFoundError,
  POOL_RESPONDER,
  parse,
  parseSubject,
  Ready,
  toSandmeshError,
} from "../../broker/contract/index.ts";
import type { Message } from "../../broker/link/link.ts";
import type { Connection } from "../../broker/server/index.ts";
import { type Core, ifCurrent, refuse } from "./core.ts";
import type { Sandboxes } from "./sandboxes.ts";

export class Daemons {
  readonly #core: Core;
  readonly #sandboxes: Sandboxes;

  constructor(core: Core, sandboxes: Sandboxes) {
    this.#core = core;
    this.#sandboxes = sandboxes;
  }

  /** `enr.v1.<tenant>.<sandbox>`. The subject says who it is: the server lets only that bootstrap publish there. */
  enrol(message: Message): void {
    const subject = parseSubject(message.subject);
    if (subject?.kind !== "enrol") return;
    const { tenant, sandbox } = subject;
    if (!isReplyFor(message.reply, tenant, `${POOL_RESPONDER}.${sandbox}`)) {
      this.#core.counters.refusedReplies++;
      return;
    }
    const reply = { subject: message.reply, encoding: encodingOf(message.data) };
    try {
      const { generation, incarnation, public_key } = parse(EnrolRequest, message.data);
      const live = this.#sandboxes.get(sandbox, tenant);
      if (live === undefined) throw new NotFoundError(`no sandbox ${sandbox}`, { sandbox });
      this.#sandboxes.apply(live, { type: "enrol", generation, incarnation, publicKey: public_key, reply });
    } catch (thrown) {
      const error = toSandmeshError(thrown);
      this.#core.log.warn({ tenant, sandbox, code: error.code, error: error.message }, "enrolment refused");
      refuse(this.#core, reply, error);
    }
  }

  /** `evt.v1.<tenant>.sbx.<sandbox>.ready`: an event, so that nobody is answered where it is malformed. */
  ready(message: Message): void {
    const subject = parseSubject(message.subject);
    if (subject?.kind !== "event" || subject.scope !== "sandbox") return;
    const { tenant, of: sandbox } = subject;
    try {
      const { generation, incarnation } = parse(Ready, message.data);
      const live = this.#sandboxes.get(sandbox, tenant);
      if (live !== undefined) this.#sandboxes.apply(live, { type: "ready", generation, incarnation });
      // It is of no record, so nobody will ever use it: an orphan, or older than what is remembered.
      else this.#end(tenant, sandbox, generation);
    } catch (thrown) {
      const error = toSandmeshError(thrown);
      this.#core.log.warn({ tenant, sandbox, error: error.message }, "a ready message was refused");
    }
  }

  #end(tenant: string, sandbox: string, generation: number): void {
    const body = { version: 1, generation, reason: "deleted" };
    ifCurrent(this.#core, () =>
      this.#core.link.publish(controlSubject(tenant, sandbox, "release"), encode(body)),
    );
  }

  /** The server saw a connection with this key come or go. */
  connection(publicKey: string, connection: Connection, type: "connected" | "disconnected"): void {
    const live = this.#sandboxes.byPublicKey(publicKey);
    if (live !== undefined) this.#sandboxes.apply(live, { type, connection });
  }
}
