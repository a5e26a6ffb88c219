// Which connections of a sandbox condemn it: every order in which servers may tell of them, and what they answer when asked.
import { describe, expect, test } from "bun:test";
import type { Connection } from "../../broker/server/connections.ts";
import { T0 } from "./testing.ts";
import { BOOTING, LEASED, on, World } from "./testing-connections.ts";

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
      world.comes(first, second);
      if (flap) {
        world.goes(second);
        world.wait(500);
        world.comes(third);
      }
      world.wait(10_000);
      expect([flap, world.verdict]).toEqual([flap, "leased"]);
      world.goes(first);
      world.wait(60_000);
      expect([flap, world.verdict]).toEqual([flap, "leased"]);
    }
  });

  test("is condemned where that one stays open for long: it may be another's, and be silent", () => {
    const [first, second] = [on("A"), on("A")];
    const world = new World(LEASED);
    world.mute.add(first);
    world.comes(first, second);
    world.wait(20_000);
    expect(world.verdict).toBe("tampered");
  });

  test("is condemned at once where it is the older one on which it answers", () => {
    const [own, silent] = [on("A"), on("A")];
    const world = new World(LEASED);
    world.mute.add(silent);
    world.comes(own, silent);
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
        world.comes(...order);
        world.wait(1_000);
        expect(world.verdict).toBe("leased");
        world.wait(2_000);
        expect(world.verdict).toBe("tampered");
      }
    });

    test(`beside it, on ${where}, and quickly gone again: it ends`, () => {
      const [own, thief] = [on("A"), on(where)];
      const world = new World(LEASED);
      world.comes(own);
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
    world.comes(own);
    world.connected(thief);
    world.disconnected(thief);
    world.comes(again);
    world.wait(3_000);
    expect(world.verdict).toBe("tampered");
  });

  test("with two servers that answer it ends, though a third, dead one does not", () => {
    const [first, own, thief] = [on("C"), on("A"), on("B")];
    const world = new World(LEASED);
    world.silent.add("C");
    world.connected(first);
    world.comes(own, thief);
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
