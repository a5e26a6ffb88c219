// What becomes of a sandbox that has no connection: told of by its server, by none, or by all after an outage.
import { describe, expect, test } from "bun:test";
import type { Connection } from "../../broker/server/connections.ts";
import type { SandboxRecord } from "./record.ts";
import { T0 } from "./testing.ts";
import { BOOTING, LEASED, on, World } from "./testing-connections.ts";

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
    world.comes(next);
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
