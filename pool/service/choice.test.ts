// The choice among providers: shares, refusals, spares; and a pool in this process over two doubles, against a real
// nats-server.
import { describe, expect, test } from "bun:test";
import { testServer, until } from "../../broker/server/testing.ts";
import { errorOf } from "../testing/errors.ts";
import { Caller, QUICK, SHORT } from "../testing/mesh.ts";
import { ProviderDouble } from "../testing/provider.ts";
import { MemoryRecords } from "../testing/store.ts";
import { choose, isRefusal, madeNothing, NO_CHOICES, ProviderChoice, type Weights } from "./choice.ts";
import { type Pool, startPool } from "./pool.ts";

const T0 = 1_000_000;

function picks(able: [string, ...string[]], weights: Weights, count: number, state = NO_CHOICES): string[] {
  const names: string[] = [];
  for (let i = 0; i < count; i++) {
    const chosen = choose(able, weights, state, T0);
    names.push(chosen.name);
    state = chosen.state;
  }
  return names;
}

const tally = (names: string[]) =>
  Object.fromEntries(
    [...new Set(names)].sort().map((name) => [name, names.filter((n) => n === name).length]),
  );

describe("the choice", () => {
  test("shares are the weights' exactly, and no cluster gets its share in one piece", () => {
    const names = picks(["east", "west", "lab"], { east: 5, west: 3, lab: 2 }, 1_000);
    expect(tally(names)).toEqual({ east: 500, west: 300, lab: 200 });
    for (let i = 0; i < 1_000; i += 10) {
      expect(tally(names.slice(i, i + 10))).toEqual({ east: 5, west: 3, lab: 2 });
    }
  });

  test("without weights the first that can gets all; a spare gets what those with weights cannot have", () => {
    expect(tally(picks(["east", "west"], {}, 10))).toEqual({ east: 10 });
    expect(tally(picks(["spare", "east", "west"], { east: 1, west: 1 }, 10))).toEqual({ east: 5, west: 5 });
    expect(tally(picks(["spare"], { east: 1, west: 1 }, 3))).toEqual({ spare: 3 });
  });

  test("what only one can have leaves the shares of the others as they are", () => {
    const weights = { east: 1, west: 1 };
    let state = NO_CHOICES;
    for (let i = 0; i < 100; i++) state = choose(["east"], weights, state, T0).state;
    expect(tally(picks(["east", "west"], weights, 10, state))).toEqual({ east: 5, west: 5 });
  });

  test("one that refused is passed over for its time, and is not owed what it missed", () => {
    const weights = { east: 1, west: 1 };
    const able: [string, ...string[]] = ["east", "west"];
    const told: string[] = [];
    const choice = new ProviderChoice(weights, 1_000, (name) => told.push(name));
    const draw = (count: number, now: number) =>
      tally(Array.from({ length: count }, () => choice.pick(able, now)));
    choice.passOver("east", "quota", T0);
    choice.passOver("east", "quota", T0 + 1);
    expect(told).toEqual(["east"]);
    expect(draw(20, T0 + 1_000)).toEqual({ west: 20 });
    expect(draw(20, T0 + 1_001)).toEqual({ east: 10, west: 10 });
    choice.passOver("east", "quota", T0 + 2_000);
    expect(told).toEqual(["east", "east"]);
  });

  test("where all refused the next is asked by weight all the same, and a spec's own provider always", () => {
    const state = { owed: {}, passedUntil: { east: T0 + 1, west: T0 + 1 } };
    expect(tally(picks(["east", "west"], { east: 1, west: 1 }, 10, state))).toEqual({ east: 5, west: 5 });
    expect(tally(picks(["east"], { east: 1, west: 1 }, 3, state))).toEqual({ east: 3 });
  });

  test("no room, no rights, no answer speak of the provider; an image or a crash of its sandbox alone", () => {
    const refusals = [
      { code: "quota_exceeded" },
      { code: "permission_denied", reason: "forbidden" },
      { code: "provider_failed", reason: "unreachable" },
      { code: "boot_failed", reason: "unschedulable" },
    ];
    for (const error of refusals) expect([error, isRefusal(error)]).toEqual([error, true]);
    const others = [
      { code: "image_error" },
      { code: "unsupported" },
      { code: "canceled" },
      { code: "boot_failed", reason: "exited" },
      { code: "provider_failed", reason: "ended" },
    ];
    for (const error of others) expect([error, isRefusal(error)]).toEqual([error, false]);
  });
});

test("only what surely made nothing goes to another provider", () => {
  for (const reason of ["unauthorized", "throttled", "no_owner"]) {
    expect(madeNothing({ code: "provider_failed", reason })).toBe(true);
  }
  for (const reason of ["unreachable", "refused", undefined]) {
    expect(madeNothing({ code: "provider_failed", reason })).toBe(false);
  }
  expect(madeNothing({ code: "quota_exceeded" })).toBe(true);
  expect(madeNothing({ code: "boot_failed", reason: "unschedulable" })).toBe(false);
});

class TwoClusters implements AsyncDisposable {
  readonly east = new ProviderDouble("east");
  readonly west = new ProviderDouble("west");
  readonly #records = new MemoryRecords();
  readonly #pools: Pool[] = [];
  readonly #server;

  constructor(server: Awaited<ReturnType<typeof testServer>>) {
    this.#server = server;
  }

  async start(): Promise<Pool> {
    const pool = await startPool({
      link: await this.#server.pool({ reconnect: QUICK }),
      store: this.#records.open(),
      minter: this.#server.keys,
      providers: [this.east, this.west],
      weights: { east: 1, west: 1 },
      daemonUrls: [this.#server.url],
      limits: { ...SHORT, providerPassMs: 60_000 },
    });
    this.#pools.push(pool);
    return pool;
  }

  async caller(): Promise<Caller> {
    return new Caller(await this.#server.user("acme", "ann", { reconnect: QUICK }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.east.end(), this.west.end()]);
    for (const pool of this.#pools) await pool.close();
    await this.#server.close();
  }
}

const twoClusters = async () => new TwoClusters(await testServer());

describe("a pool over two clusters", () => {
  test("shares what both can have, obeys a spec's word, and passes over the one that fails", async () => {
    await using mesh = await twoClusters();
    await mesh.start();
    const ann = await mesh.caller();
    for (let i = 0; i < 4; i++) await ann.lease();
    expect([mesh.east.made.size, mesh.west.made.size]).toEqual([2, 2]);
    const named = await ann.lease({ spec: { image: "task:1", provider: "west" } });
    expect([named.provider, mesh.west.made.has(named.sandbox)]).toEqual(["west", true]);
    mesh.east.script = () => ({ create: "fail" });
    // By turns, so at most the second one meets it.
    const failures = await Promise.all([0, 1].map(() => errorOf(ann.lease()).catch(() => undefined)));
    expect(failures.filter((error) => error !== undefined)).toHaveLength(1);
    for (let i = 0; i < 4; i++) expect((await ann.lease()).provider).toBe("west");
  });

  test("what one refuses before it makes anything the other makes; where both refuse, the caller hears it", async () => {
    await using mesh = await twoClusters();
    await mesh.start();
    const ann = await mesh.caller();
    mesh.east.script = () => ({ create: "full" });
    const grants = await Promise.all(Array.from({ length: 10 }, () => ann.lease()));
    expect(grants.map(({ provider }) => provider)).toEqual(Array(10).fill("west"));
    expect([mesh.east.created.length, mesh.west.made.size]).toEqual([0, 10]);
    const own = await errorOf(ann.lease({ spec: { image: "task:1", provider: "east" } }));
    expect(own.code).toBe("quota_exceeded");
    mesh.west.script = () => ({ create: "full" });
    expect((await errorOf(ann.lease())).code).toBe("quota_exceeded");
    await ann.release({ run: "run-1" });
    expect(mesh.west.made.size).toBe(0);
  });

  test("starts while one cluster is away: its leases go on, and what ended there is found on its return", async () => {
    await using mesh = await twoClusters();
    const before = await mesh.start();
    const ann = await mesh.caller();
    const grants = [await ann.lease(), await ann.lease()];
    const there = grants.find(({ provider }) => provider === "east");
    const lost = await ann.lease({ spec: { image: "task:1", provider: "east" } });
    await before.close();
    mesh.east.listFails = true;
    const after = await mesh.start();
    await ann.renew();
    const states = async () => {
      const { sandboxes } = await ann.list();
      return Object.fromEntries(sandboxes.map(({ sandbox, state }) => [sandbox, state]));
    };
    expect(Object.values(await states())).toEqual(["leased", "leased", "leased"]);
    // New ones are made where somebody answers.
    expect((await ann.lease()).provider).toBe("west");
    expect((await ann.lease()).provider).toBe("west");
    // Its daemon still speaks, so that nothing but the comparison can tell.
    const daemon = mesh.east.made.get(lost.sandbox)?.daemon;
    mesh.east.made.delete(lost.sandbox);
    mesh.east.listFails = false;
    try {
      await until("the comparison finds it", () => after.counters.ended.deleted === 1);
    } finally {
      await daemon?.close();
    }
    expect((await states())[there?.sandbox ?? ""]).toBe("leased");
  });
});
