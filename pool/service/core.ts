// What all parts of the running pool share: its settings, its edges, and its clock.
import type { Logger } from "pino";
import { encode, NotFoundError, type SandmeshError } from "../../broker/contract/index.ts";
import type { Link } from "../../broker/link/link.ts";
import type { KeyRing } from "../../broker/server/index.ts";
import type { PoolLimits } from "../config.ts";
import type { ReplyTo } from "../lifecycle/record.ts";
import type { Provider } from "../provider/provider.ts";
import type { Deadlines } from "../reaper/deadlines.ts";
import type { RecordStore } from "../records/store.ts";
import type { ProviderChoice } from "./choice.ts";
import { type Counters, count } from "./counters.ts";
import type { Meter } from "./meter.ts";

/** Mints credentials, offline. */
export type Minter = Pick<KeyRing, "mintBootstrap" | "mintSandbox">;

export interface Core {
  readonly name: string;
  readonly limits: PoolLimits;
  readonly link: Link;
  readonly store: RecordStore;
  /** Requests whose answer waits for a record, by their reply subject. */
  readonly unanswered: Map<string, ReplyTo>;
  readonly minter: Minter;
  readonly providers: ReadonlyMap<string, Provider>;
  readonly choice: ProviderChoice;
  readonly deadlines: Deadlines;
  readonly counters: Counters;
  readonly meter: Meter;
  readonly log: Logger;
  /** NATS servers as sandboxes reach them, and the CA's PEM. */
  readonly daemonUrls: readonly string[];
  readonly ca: string | undefined;
  now(): number;
}

/** Answers a request. Never throws: who asked may be gone, and the link may be closed. */
export function respond(core: Core, reply: ReplyTo, message: object): void {
  core.unanswered.delete(reply.subject);
  try {
    core.link.publish(reply.subject, encode(message, reply.encoding));
  } catch (error) {
    core.log.warn({ error: String(error), subject: reply.subject }, "an answer could not be sent");
  }
}

/** Runs `then` once it is sure that this pool is still the current one; never where it is not, since then what is
 * unknown here may be the next one's. */
export function ifCurrent(core: Core, then: () => void): void {
  core.store
    .current()
    .then(then)
    .catch((error: unknown) => core.log.debug({ error: String(error) }, "left to the next pool"));
}

/** Refuses a request. That something is not there is said by the current pool alone. */
export function refuse(core: Core, reply: ReplyTo, error: SandmeshError): void {
  if (error instanceof NotFoundError) ifCurrent(core, () => respondError(core, reply, error));
  else respondError(core, reply, error);
}

export function respondError(core: Core, reply: ReplyTo, error: SandmeshError): void {
  count(core.counters.errors, error.code);
  respond(core, reply, { error: error.toWire() });
}
