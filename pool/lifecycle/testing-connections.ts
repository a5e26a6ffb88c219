// For tests: a sandbox's connections, and the servers that tell of them.
import type { Connection } from "../../broker/server/connections.ts";
import { dueAt } from "./deadline.ts";
import type { Effect, SandboxEvent } from "./events.ts";
import { isEnding, type SandboxRecord } from "./record.ts";
import { step } from "./step.ts";
import { intended, LIMITS, T0 } from "./testing.ts";

const KEY = `U${"A".repeat(55)}`;
export const LEASED = intended({ state: "leased", publicKey: KEY, spec: undefined, replies: undefined });
export const BOOTING = intended({ state: "booting", publicKey: KEY });

let last = 0;
/** A connection, younger than all before. */
export const on = (server: string): Connection => ({ server, number: ++last, startedAt: T0 + last });

/** A sandbox, and the servers that would be asked about it. */
export class World {
  record: SandboxRecord;
  now = T0;
  readonly open = new Set<Connection>();
  readonly silent = new Set<string>();
  /** Open, since their servers do not know yet that the network was cut. */
  readonly mute = new Set<Connection>();
  /** Questions that no answer has come to yet. */
  asked: (readonly Connection[])[] = [];

  constructor(record: SandboxRecord) {
    this.record = record;
  }

  apply(event: SandboxEvent): readonly Effect[] {
    const { record, effects } = step(this.record, event, this.now, LIMITS);
    this.record = record;
    if (effects.some(({ type }) => type === "look")) this.asked.push(record.connections);
    return effects;
  }

  connected(connection: Connection): void {
    this.apply({ type: "connected", connection });
  }

  disconnected(connection: Connection): void {
    this.apply({ type: "disconnected", connection });
  }

  /** They are open from now on, and told of. */
  comes(...connections: readonly Connection[]): void {
    for (const connection of connections) {
      this.open.add(connection);
      this.connected(connection);
    }
  }

  goes(connection: Connection): void {
    this.open.delete(connection);
    this.disconnected(connection);
  }

  answer(): void {
    for (const asked of this.asked.splice(0)) {
      const open = [...this.open].filter(({ server }) => !this.silent.has(server));
      const heard = open.filter((connection) => !this.mute.has(connection));
      this.apply({ type: "seen", asked, open, heard, complete: this.silent.size === 0 });
    }
  }

  /** What all servers have, after nobody told. */
  found(): void {
    this.apply({ type: "found", open: [...this.open] });
  }

  /** Lets `ms` go by: deadlines come, and servers answer. */
  wait(ms: number): void {
    const until = this.now + ms;
    while (!isEnding(this.record.state) && dueAt(this.record) <= until) {
      this.now = Math.max(this.now, dueAt(this.record));
      this.apply({ type: "deadline" });
      this.answer();
    }
    this.now = until;
    this.answer();
  }

  get verdict(): string {
    return this.record.end?.reason ?? this.record.state;
  }
}
