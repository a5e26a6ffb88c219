// For tests: a daemon's side of enrolment and readiness over real connections, without anything that executes.
// It can be told to misbehave, which the real one cannot.
import {
  type Bootstrap,
  controlWildcard,
  decode,
  EnrolAnswer,
  encode,
  enrolSubject,
  parseAnswer,
  parseSubject,
  SandmeshError,
  sandboxEventSubject,
  sandboxSubject,
} from "../../broker/contract/index.ts";
import { type Credentials, createUserKey } from "../../broker/credentials/index.ts";
import { dial, subscribed } from "../../broker/endpoint/enrol.ts";
import { connect } from "../../broker/link/connect.ts";
import type { Link } from "../../broker/link/link.ts";

/** What a pool or server that is away for a moment looks like from here. */
const AWAY = new Set(["unreachable", "deadline_exceeded", "connection_failed"]);

export interface Word {
  verb: string;
  body: Record<string, unknown>;
}

export class DaemonDouble {
  readonly bootstrap: Bootstrap;
  readonly incarnation: string = crypto.randomUUID();
  readonly words: Word[] = [];
  /** How often it has been asked whether it is there. */
  pings = 0;
  readonly #key = createUserKey();
  /** As the real one: until then it waits for a server that is away. */
  readonly #deadline: number;
  credentials: Credentials | undefined;
  #link: Link | undefined;
  #repeat: ReturnType<typeof setInterval> | undefined;
  #closed = false;
  /** Called at the pool's word to end. */
  onRelease: () => void = () => {};

  constructor(bootstrap: Bootstrap) {
    this.bootstrap = bootstrap;
    this.#deadline = performance.now() + bootstrap.boot_timeout_ms;
  }

  get generation(): number {
    const grants = this.words.filter(({ verb }) => verb === "grant");
    return Number(grants.at(-1)?.body.generation ?? this.bootstrap.generation);
  }

  /** Tries until it is answered, each time with the same key: a new one would be someone else's. */
  async enrol(): Promise<void> {
    const { urls, jwt, seed } = this.bootstrap;
    while (this.credentials === undefined && !this.#closed) {
      let link: Link | undefined;
      try {
        link = await connect({ urls, credentials: { jwt, seed } });
        this.credentials = await this.enrolOver(link, this.#key);
      } catch (error) {
        const away = error instanceof SandmeshError && AWAY.has(error.code);
        if (!away || performance.now() > this.#deadline) throw error;
        await Bun.sleep(50);
      } finally {
        await link?.close();
      }
    }
  }

  /** One try over `link`. */
  async enrolOver(
    link: Link,
    key = createUserKey(),
    generation = this.bootstrap.generation,
  ): Promise<Credentials> {
    const { tenant, sandbox } = this.bootstrap;
    const { incarnation } = this;
    const body = encode({ version: 1, generation, incarnation, public_key: key.publicKey });
    const answer = await link.request("pool", enrolSubject(tenant, sandbox), body, { timeoutMs: 1_000 });
    return { jwt: parseAnswer(EnrolAnswer, answer.data).jwt, seed: key.seed };
  }

  /** A connection with the sandbox's own credential. */
  async connect(): Promise<Link> {
    if (this.credentials === undefined) throw new Error("not enrolled");
    const { urls } = this.bootstrap;
    const reconnect = { firstMs: 20, baseMs: 50, maxMs: 200 };
    return dial({ urls, credentials: this.credentials, reconnect, onError: () => {} }, this.#deadline);
  }

  async serve(): Promise<void> {
    const { tenant, sandbox } = this.bootstrap;
    const link = await this.connect();
    if (this.#closed) {
      await link.close();
      return;
    }
    this.#link = link;
    link.subscribe(controlWildcard(tenant, sandbox), (message) => {
      const subject = parseSubject(message.subject);
      if (subject?.kind !== "control") return;
      clearInterval(this.#repeat);
      this.words.push({ verb: subject.verb, body: decode(message.data) });
      if (subject.verb === "release") this.onRelease();
    });
    link.subscribe(sandboxSubject(tenant, sandbox, "ping"), (message) => {
      this.pings++;
      const { incarnation, generation } = this;
      message.respond(encode({ sandbox, incarnation, generation }));
    });
    await subscribed(link, this.#deadline);
    this.ready();
    this.#repeat = setInterval(() => this.ready(), 200);
  }

  ready(generation = this.generation, incarnation = this.incarnation): void {
    const { tenant, sandbox } = this.bootstrap;
    const body = encode({ version: 1, generation, incarnation, boot_ms: 1 });
    this.#link?.publish(sandboxEventSubject(tenant, sandbox, "ready"), body);
  }

  async close(): Promise<void> {
    this.#closed = true;
    clearInterval(this.#repeat);
    await this.#link?.close();
  }
}
