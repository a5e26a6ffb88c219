// Asks NATS's servers which connections a sandbox has, before it is ended for having none, or another's beside its own.
import { encode, sandboxSubject } from "../../broker/contract/index.ts";
import { after } from "../../broker/link/after.ts";
import { Inbox } from "../../broker/link/inbox.ts";
import {
  CONNECTIONS_SUBJECT,
  type Connection,
  connectionsOf,
  isSame,
  type OpenConnection,
  oldestFirst,
  parseConnections,
} from "../../broker/server/index.ts";
import { isDoubtful } from "../lifecycle/connections.ts";
import type { SandboxEvent } from "../lifecycle/events.ts";
import type { Core } from "./core.ts";
import type { Live } from "./sandboxes.ts";
import { type Answers, sweep } from "./sweep.ts";

/** For the answers to one question. */
const ANSWER_MS = 1_000;
/** For a page of all connections, which takes a server more than a second where they are many (sweep.ts). */
const PAGE_MS = 10_000;
/** For a second one to answer what only one may. */
const OTHERS_MS = 200;
/** Where not one server answers: whoever asks may not, or an answer was lost. */
const TRIES = 3;
/** Questions at once: for each every server goes through its connections. */
const AT_ONCE = 8;
/** No key, so that a server answers nothing but that it is there. */
const NOBODY = connectionsOf("-");

/** In place of the id of one that has not answered yet. */
const unheard = (name: string): string => `name:${name}`;

interface Look {
  live: Live;
  asked: readonly Connection[];
}

/** A server, as far as it has told who it is. */
interface Known {
  name?: string;
  clustered?: boolean;
  /** performance.now; undefined while it answers. */
  silentSince: number | undefined;
}

interface Book {
  all(): Iterable<Live>;
  apply(live: Live, event: SandboxEvent): void;
}

export class Looks {
  readonly #core: Core;
  readonly #book: Book;
  readonly #inbox: Inbox;
  readonly #due = new Set<Live>();
  /** All servers that are known, by id. */
  readonly #servers = new Map<string, Known>();
  #learned = false;
  #running = false;
  #closed = false;
  #timer: ReturnType<typeof setInterval> | undefined;
  #cancelSweep: () => void = () => {};

  constructor(core: Core, book: Book) {
    this.#core = core;
    this.#book = book;
    this.#inbox = new Inbox(core.link);
  }

  /** Learns which servers there are, beside those of the cluster that keep the records: one that is cut off while this pool
   * starts would not answer, and who is with it would count as nowhere. And from then on looks whether they live: one that is
   * killed tells nobody, and who was connected to it and does not come back is told of by none. */
  start(): void {
    for (const name of this.#core.store.servers)
      this.#servers.set(unheard(name), { name, clustered: true, silentSince: undefined });
    void this.#run();
    this.#sweepLater(1);
    this.#timer = setInterval(() => {
      if (this.#learned && this.#servers.size > 1) void this.#run();
    }, this.#core.limits.serverGoneMs / 3);
  }

  add(live: Live): void {
    this.#due.add(live);
    void this.#run();
  }

  /** After the pool's own connection was away: what is known of connections is void. One that was alone and does not answer
   * was started again, and has another id: who would wait for the old one would learn of no loss before that counts as gone.
   * Those of a cluster are waited for: what broke our connection may have cut one off from the others, with all its daemons. */
  anew(): void {
    for (const [server, { clustered }] of this.#servers) {
      if (clustered !== true) this.#servers.delete(server);
    }
    this.#learned = false;
    void this.#run();
    this.#sweepLater(1);
  }

  /** Of an advisory: one that has come since. */
  know(server: string): void {
    if (!this.#servers.has(server)) this.#servers.set(server, { silentSince: undefined });
  }

  /** All servers; undefined before any has answered. */
  get #known(): string[] | undefined {
    return this.#learned ? [...this.#servers.keys()] : undefined;
  }

  close(): void {
    this.#closed = true;
    clearInterval(this.#timer);
    this.#cancelSweep();
    this.#due.clear();
    this.#inbox.close();
  }

  /** All that live are looked at once after what nobody could tell of. Not before daemons have had the time to come back
   * themselves, which is longer than their longest wait between two tries; and once where outages follow each other. */
  #sweepLater(attempt: number): void {
    if (this.#closed) return;
    let current = true;
    const stop = after(this.#core.limits.recoveryGraceMs, () => void this.#sweep(attempt, () => current));
    this.#cancelSweep();
    this.#cancelSweep = () => {
      current = false;
      stop();
    };
  }

  async #sweep(attempt: number, isCurrent: () => boolean): Promise<void> {
    const ask = (question: Uint8Array) => this.#ask(question, this.#known, PAGE_MS);
    const { open, complete, answered } = await sweep(ask, isCurrent);
    if (!isCurrent()) return;
    this.#learned ||= answered;
    const all = complete.size > 0 && this.#known?.every((server) => complete.has(server)) === true;
    for (const live of [...this.#book.all()]) {
      const found = open.get(live.record.publicKey ?? "") ?? [];
      const worthTelling = live.record.publicKey !== undefined && (all || found.length > 0);
      if (worthTelling) this.#apply(live, { type: "found", open: found });
    }
    // One that is silent comes back, or counts as gone; where none answers, whoever asks may not.
    if (!all && (answered || attempt < TRIES)) this.#sweepLater(answered ? 1 : attempt + 1);
  }

  async #run(): Promise<void> {
    if (this.#running) return;
    this.#running = true;
    let unanswered = 0;
    do {
      const looks = [...this.#due].map((live) => ({ live, asked: live.record.connections }));
      this.#due.clear();
      // Thousands that lost the same server are told apart from those that have two by this one question.
      const there = await this.#ask(NOBODY, this.#known);
      this.#learned ||= there.size > 0;
      unanswered = there.size > 0 ? 0 : unanswered + 1;
      if (there.size > 0) await this.#goThrough(looks, there);
      else for (const look of looks) this.#unanswered(look, unanswered);
    } while (!this.#closed && (this.#due.size > 0 || this.#silence(unanswered)));
    this.#running = false;
  }

  /** Whether it is to be asked again for how long a server has been silent. */
  #silence(unanswered: number): boolean {
    return (
      unanswered === 0 && [...this.#servers.values()].some(({ silentSince }) => silentSince !== undefined)
    );
  }

  #unanswered({ live, asked }: Look, times: number): void {
    if (times < TRIES) this.#due.add(live);
    else this.#apply(live, { type: "seen", asked, open: undefined });
  }

  async #goThrough(looks: readonly Look[], there: Answers): Promise<void> {
    this.#count(there);
    const asking: Look[] = [];
    for (const look of looks) {
      if (this.#worthAsking(look, there)) asking.push(look);
      else this.#due.add(look.live);
    }
    const servers = [...there.keys()];
    for (let i = 0; i < asking.length && !this.#closed; i += AT_ONCE) {
      await Promise.all(asking.slice(i, i + AT_ONCE).map((look) => this.#look(look, servers)));
    }
  }

  /** Not before the silent servers have answered, or count as gone; but for two that are with those that answer. */
  #worthAsking({ live, asked }: Look, there: Answers): boolean {
    if (there.size === this.#servers.size) return true;
    const open = asked.filter(({ server }) => there.has(server)).length;
    return open > 1 || (open > 0 && live.record.left !== undefined);
  }

  async #look({ live, asked }: Look, servers: readonly string[]): Promise<void> {
    const { publicKey } = live.record;
    if (publicKey === undefined) return;
    const question = connectionsOf(publicKey);
    const answers = await this.#ask(question, servers);
    const open = oldestFirst([...answers.values()].flat());
    const heard = isDoubtful(live.record, open) ? await this.#hear(live, open, question, servers) : [];
    const complete = this.#servers.size === answers.size;
    this.#apply(live, { type: "seen", asked, open, heard, complete });
  }

  /** Of these the ones on which something is said when the daemon is asked: one that a cut of the network has left open says
   * nothing any more. */
  async #hear(
    { record: { tenant, sandbox } }: Live,
    open: readonly OpenConnection[],
    question: Uint8Array,
    servers: readonly string[],
  ): Promise<OpenConnection[]> {
    const { link } = this.#core;
    const ping = encode({ version: 1 });
    const timeoutMs = ANSWER_MS;
    await link.request(sandbox, sandboxSubject(tenant, sandbox, "ping"), ping, { timeoutMs }).catch(() => {});
    await Bun.sleep(OTHERS_MS);
    const later = [...(await this.#ask(question, servers)).values()].flat();
    return open.filter((before) => later.some((now) => isSame(now, before) && now.said > before.said));
  }

  /** Ends the connections of those that have been silent for too long, and of those that were started again. */
  #count(there: Answers): void {
    const now = performance.now();
    const names = new Set([...there.keys()].map((server) => this.#servers.get(server)?.name));
    for (const [server, known] of this.#servers) {
      const { name, silentSince } = known;
      if (there.has(server)) known.silentSince = undefined;
      else if (name !== undefined && names.has(name)) {
        if (server === unheard(name)) this.#servers.delete(server);
        else this.#gone(server, name, "a NATS server was started again: the one before is gone");
      } else if (silentSince === undefined) known.silentSince = now;
      else if (now - silentSince >= this.#core.limits.serverGoneMs) {
        this.#gone(server, name, "a NATS server has been silent for too long: it counts as gone");
      }
    }
  }

  #gone(server: string, name: string | undefined, why: string): void {
    this.#servers.delete(server);
    this.#core.log.warn({ server, name }, why);
    for (const live of [...this.#book.all()]) this.#apply(live, { type: "server_gone", server });
  }

  #apply(live: Live, event: SandboxEvent): void {
    if (!this.#closed) this.#book.apply(live, event);
  }

  /** What comes within `withinMs`; no longer than until all of `expected` have answered. */
  #ask(
    question: Uint8Array,
    expected: readonly string[] | undefined,
    withinMs = ANSWER_MS,
  ): Promise<Answers> {
    return new Promise((resolve) => {
      const answers = new Map<string, readonly OpenConnection[]>();
      const { reply, forget } = this.#inbox.expect(({ data }) => {
        const answer = parseConnections(data);
        if (answer === undefined) return;
        // Also of those that answer too late: a server that is new.
        const { id, name, clustered } = answer.server;
        this.#servers.set(id, { name, clustered, silentSince: this.#servers.get(id)?.silentSince });
        answers.set(id, answer.open);
        if (expected?.every((server) => answers.has(server)) === true) resolve(answers);
      });
      after(withinMs, () => {
        forget();
        resolve(answers);
      });
      try {
        this.#core.link.publish(CONNECTIONS_SUBJECT, question, { reply });
      } catch (error) {
        this.#core.log.debug({ error: String(error) }, "NATS's servers could not be asked");
      }
    });
  }
}
