// Which connections of a sandbox condemn it: every order in which servers may tell of them, and what they answer when asked.
import { describe, expect, test } from "bun:test";
import type { Connection } from "../../broker/server/connections.ts";
import { dueAt } from "./deadline.ts";
import type { Effect, SandboxEvent } from "./events.ts";
import { isEnding, type SandboxRecord } from "./record.ts";
import { step } from "./step.ts";
import { intended, LIMITS, T0 } from "./testing.ts";

const KEY = `U${"A".repeat(55)}`;
const LEASED = intended({ state: "leased", publicKey: KEY, spec: undefined, replies: undefined });
const BOOTING = intended({ state: "booting", publicKey: KEY });

let last = 0;
/** A connection, younger than all before. */
const on = (server: string): Connection => ({ server, number: ++last, startedAt: T0 + last });

/** A sandbox, and the servers that would be asked about it. */
class World {
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

/** All orders of what several servers tell, each of them in its own. */
function orders<T>(lists: readonly (readonly T[])[]): T[][] {
  if (lists.every((list) => list.length === 0)) return [[]];
  return lists.flatMap((list, at) => {
    const [first, ...rest] = list;
    if (first === undefined) return [];
    return orders(lists.with(at, rest)).map((order) => [first, ...order]);
  });
}

type Told = [type: "connected" | "disconnected", connection: Connection];

/** What the servers tell of a life of connections one after the other, but for what those that were killed keep to themselves. */
function tellings(life: readonly Connection[], killed: readonly Connection[]): Told[][] {
  const servers = [...new Set(life.map(({ server }) => server))];
  return orders(
    servers.map((server) =>
      life
        .filter((connection) => connection.server === server)
        .flatMap((connection): Told[] => {
          const ends = connection !== life.at(-1) && !killed.includes(connection);
          return [["connected", connection], ...(ends ? [["disconnected", connection] as Told] : [])];
        }),
    ),
  );
}

const LIVES = ["A A", "A B", "A B C", "A B A", "A B B", "A A B", "A B C A", "A B A B", "A B C B"];

describe.each([
  ["leased", LEASED],
  ["booting", BOOTING],
])("a daemon that reconnects (%s)", (state, record) => {
  for (const life of LIVES) {
    test(`${life}: is not condemned, in whichever order servers tell of it and whichever of them is killed`, () => {
      const servers = life.split(" ");
      // The one that it is connected to at the end lives.
      const mayDie = [...new Set(servers)].filter((server) => server !== servers.at(-1));
      for (const dead of [undefined, ...mayDie]) {
        const connections = servers.map(on);
        const from = connections.map(({ server }) => server).lastIndexOf(dead ?? "");
        const killed = connections.filter((_, at) => at === from);
        for (const order of tellings(connections, killed)) {
          // Told at once, or so slowly that the pool asks in between.
          for (const between of [0, 400, 2_500]) {
            const world = new World(record);
            const [current] = connections.slice(-1);
            if (current !== undefined) world.open.add(current);
            if (dead !== undefined) world.silent.add(dead);
            for (const [type, connection] of order) {
              world.apply({ type, connection });
              world.wait(between);
            }
            world.wait(10_000);
            if (dead !== undefined) {
              world.silent.clear();
              world.apply({ type: "server_gone", server: dead });
            }
            world.wait(50_000 - (world.now - T0));
            const said = order.map(([type, { server, number }]) => `${type} ${server}${number}`).join(", ");
            expect({ said, dead, between, verdict: world.verdict }).toEqual({
              said,
              dead,
              between,
              verdict: state,
            });
          }
        }
      }
    });
  }
});

describe("a daemon that lost its connection to a cut of the network, which the server does not know yet", () => {
  test("is not condemned for its next one, nor where that ends as well", () => {
    for (const flap of [false, true]) {
      const [first, second, third] = [on("A"), on("A"), on("B")];
      const world = new World(LEASED);
      world.mute.add(first);
      world.open.add(first).add(second);
      for (const connection of [first, second]) world.connected(connection);
      if (flap) {
        world.open.delete(second);
        world.disconnected(second);
        world.wait(500);
        world.open.add(third);
        world.connected(third);
      }
      world.wait(10_000);
      expect([flap, world.verdict]).toEqual([flap, "leased"]);
      world.open.delete(first);
      world.disconnected(first);
      world.wait(60_000);
      expect([flap, world.verdict]).toEqual([flap, "leased"]);
    }
  });

  test("is condemned where that one stays open for long: it may be another's, and be silent", () => {
    const [first, second] = [on("A"), on("A")];
    const world = new World(LEASED);
    world.mute.add(first);
    world.open.add(first).add(second);
    for (const connection of [first, second]) world.connected(connection);
    world.wait(20_000);
    expect(world.verdict).toBe("tampered");
  });

  test("is condemned at once where it is the older one on which it answers", () => {
    const [own, silent] = [on("A"), on("A")];
    const world = new World(LEASED);
    world.mute.add(silent);
    world.open.add(own).add(silent);
    for (const connection of [own, silent]) world.connected(connection);
    world.wait(2_500);
    expect(world.verdict).toBe("tampered");
  });
});

describe("someone else with its key", () => {
  for (const where of ["A", "B"]) {
    test(`beside it, on ${where} as it is on A: it ends, whichever is told first`, () => {
      const [own, thief] = [on("A"), on(where)];
      for (const order of [
        [own, thief],
        [thief, own],
      ]) {
        const world = new World(LEASED);
        for (const connection of order) {
          world.open.add(connection);
          world.connected(connection);
        }
        world.wait(1_000);
        expect(world.verdict).toBe("leased");
        world.wait(2_000);
        expect(world.verdict).toBe("tampered");
      }
    });

    test(`beside it, on ${where}, and quickly gone again: it ends`, () => {
      const [own, thief] = [on("A"), on(where)];
      const world = new World(LEASED);
      world.open.add(own);
      world.connected(own);
      world.wait(1_000);
      world.connected(thief);
      world.disconnected(thief);
      world.wait(0);
      expect(world.verdict).toBe("tampered");
    });
  }

  test("that reconnects in its turn: both are seen when the servers are asked", () => {
    const [own, thief, again] = [on("A"), on("B"), on("B")];
    const world = new World(LEASED);
    world.open.add(own).add(again);
    for (const connection of [own, thief]) world.connected(connection);
    world.disconnected(thief);
    world.connected(again);
    world.wait(3_000);
    expect(world.verdict).toBe("tampered");
  });

  test("with two servers that answer it ends, though a third, dead one does not", () => {
    const [first, own, thief] = [on("C"), on("A"), on("B")];
    const world = new World(LEASED);
    world.silent.add("C");
    world.open.add(own).add(thief);
    for (const connection of [first, own, thief]) world.connected(connection);
    world.wait(3_000);
    expect(world.verdict).toBe("tampered");
  });

  test("after the pool has forgotten who was connected: what the thief leaves behind is older than it", () => {
    const [own, thief] = [on("A"), on("B")];
    const world = new World(LEASED);
    world.connected(own);
    world.apply({ type: "outage_over" });
    world.open.add(own);
    world.connected(thief);
    world.disconnected(thief);
    world.wait(20_000);
    expect(world.verdict).toBe("tampered");
  });

  test("and servers that may not be asked: what they told counts", () => {
    const [own, thief] = [on("A"), on("A")];
    const world = new World(LEASED);
    for (const connection of [own, thief]) world.connected(connection);
    world.now += 3_000;
    world.apply({ type: "deadline" });
    const [asked] = world.asked;
    if (asked === undefined) throw new Error("nothing was asked");
    world.apply({ type: "seen", asked, open: undefined });
    expect(world.verdict).toBe("tampered");
  });

  test("more connections than any daemon has end it at once", () => {
    const world = new World(LEASED);
    for (let i = 0; i < 9; i++) world.connected(on("A"));
    expect(world.verdict).toBe("tampered");
  });
});

describe("a daemon that is away", () => {
  test("is lost after its grace, and not where a server still has it", () => {
    const own = on("A");
    for (const there of [false, true]) {
      const world = new World(LEASED);
      if (there) world.open.add(own);
      world.connected(own);
      world.disconnected(own);
      world.wait(2_900);
      expect(world.verdict).toBe("leased");
      world.wait(60_000);
      expect(world.verdict).toBe(there ? "leased" : "disconnected");
    }
  });

  test("while it boots has longer, since servers are busiest then", () => {
    const own = on("A");
    const world = new World(BOOTING);
    world.connected(own);
    world.disconnected(own);
    world.wait(15_000);
    expect(world.verdict).toBe("booting");
    world.wait(5_000);
    expect(world.verdict).toBe("exited");
  });

  test("with a server that was killed, and never comes back, is lost after that server counts as gone", () => {
    const own = on("A");
    const world = new World(LEASED);
    world.connected(own);
    world.wait(60_000);
    expect(world.verdict).toBe("leased");
    world.apply({ type: "server_gone", server: "A" });
    world.wait(60_000);
    expect(world.verdict).toBe("disconnected");
  });

  test("is asked about again where not all servers answer, and is not lost before", () => {
    const own = on("A");
    const world = new World(LEASED);
    world.connected(own);
    world.disconnected(own);
    world.silent.add("B");
    world.now += 4_000;
    world.apply({ type: "deadline" });
    world.answer();
    expect([world.verdict, world.asked.length]).toEqual(["leased", 1]);
    world.silent.clear();
    world.answer();
    expect(world.verdict).toBe("disconnected");
  });

  test("an answer that is older than what was told meanwhile decides nothing", () => {
    const [own, next] = [on("A"), on("A")];
    const world = new World(LEASED);
    world.connected(own);
    world.disconnected(own);
    world.now += 4_000;
    world.apply({ type: "deadline" });
    world.connected(next);
    world.answer();
    expect(world.verdict).toBe("leased");
  });
});

describe("after an outage, or a start, in which nobody told who came and went", () => {
  const [own, thief, next] = [on("A"), on("B"), on("A")];
  const after = (record: SandboxRecord, open: readonly Connection[]): World => {
    const world = new World(record);
    world.connected(own);
    world.apply({ type: "outage_over" });
    for (const connection of open) world.open.add(connection);
    return world;
  };

  test("a daemon that no server has is lost after its grace", () => {
    const world = after(LEASED, []);
    world.wait(30_000);
    world.found();
    world.wait(2_900);
    expect(world.verdict).toBe("leased");
    world.wait(200);
    expect(world.verdict).toBe("disconnected");
  });

  test("one that is back within that grace lives", () => {
    const world = after(LEASED, []);
    world.found();
    world.open.add(next);
    world.connected(next);
    world.wait(60_000);
    expect(world.verdict).toBe("leased");
  });

  test("one that was back before the servers' word came lives, though that word is older", () => {
    const world = after(LEASED, []);
    world.connected(next);
    world.found();
    world.open.add(next);
    world.wait(60_000);
    expect([world.verdict, world.asked.length]).toEqual(["leased", 0]);
  });

  test("one that is there is known again: its end is told from a reconnect", () => {
    const world = after(LEASED, [own]);
    world.found();
    world.wait(60_000);
    expect([world.verdict, world.record.connections]).toEqual(["leased", [own]]);
  });

  test("one that ended before the servers' older word came is lost all the same", () => {
    const world = after(LEASED, [own]);
    world.disconnected(own);
    world.found();
    world.open.clear();
    world.wait(10_000);
    expect(world.verdict).toBe("disconnected");
  });

  test("one that reconnected before the servers' older word came is not taken for two", () => {
    const world = after(LEASED, [own]);
    world.disconnected(own);
    world.connected(next);
    world.found();
    world.open.clear();
    world.open.add(next);
    world.wait(60_000);
    expect(world.verdict).toBe("leased");
  });

  test("someone else's connection beside its own ends it", () => {
    const world = after(LEASED, [own, thief]);
    world.found();
    world.wait(1_900);
    expect(world.verdict).toBe("leased");
    world.wait(200);
    expect(world.verdict).toBe("tampered");
  });

  test("one that boots and has not connected yet has until its deadline", () => {
    const world = after({ ...BOOTING, bootDeadlineAt: T0 + 60_000 }, []);
    world.found();
    world.wait(50_000);
    expect(world.verdict).toBe("booting");
  });
});
