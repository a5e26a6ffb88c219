// Booting, whose sandbox it is, and ending: against a real server.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { controlSubject, encode, sandboxSubject, UnsupportedError } from "../contract/index.ts";
import type { Link } from "../link/link.ts";
import { type TestServer, testServer } from "../server/testing.ts";
import { type End, openEndpoint } from "./endpoint.ts";
import {
  type Booted,
  boot,
  bootstrapOf,
  newId,
  PoolDouble,
  ScriptedExecutor,
  TENANT,
  until,
} from "./testing.ts";

let server: TestServer;
let pool: PoolDouble;
let user: Link;
const open: Booted[] = [];
beforeAll(async () => {
  server = await testServer();
  pool = await PoolDouble.start(server);
  user = await server.user(TENANT, "ann", { reconnect: { firstMs: 10, baseMs: 20, maxMs: 50 } });
});
afterAll(async () => {
  await Promise.all(open.map(({ endpoint }) => endpoint.close()));
  await server.close();
});
const booted = async (
  ...args: Parameters<typeof boot> extends [unknown, unknown, ...infer R] ? R : never
) => {
  const made = await boot(server, user, ...args);
  open.push(made);
  return made;
};
const codeOf = async (work: Promise<unknown>) =>
  work.then(
    () => "answered",
    (error: { code: string; started?: string }) => `${error.code} ${error.started ?? ""}`.trim(),
  );

describe("boot", () => {
  test("a request sent at the word ready finds the sandbox listening", async () => {
    const seen = pool.readies.length;
    const made = booted();
    const ready = await until("ready", () => pool.readies[seen]);
    const ping = encode({ version: 1 });
    const subject = sandboxSubject(TENANT, ready.sandbox, "ping");
    await user.request(ready.sandbox, subject, ping, { timeoutMs: 5_000 });
    expect(ready).toMatchObject({ generation: 1, incarnation: (await made).endpoint.incarnation });
  });

  test("ready is repeated until the pool's first word, and no longer", async () => {
    const { sandbox } = await booted();
    const mine = () => pool.readies.filter((ready) => ready.sandbox === sandbox).length;
    await until("a repetition", () => mine() >= 2);
    pool.word(sandbox, "welcome", { generation: 1, dead_man_ms: 60_000 });
    const other = await booted();
    const after = mine();
    // The other one's repetitions are the clock.
    await until("the other's", () => pool.readies.filter((r) => r.sandbox === other.sandbox).length >= 3);
    expect(mine()).toBeLessThanOrEqual(after + 1);
    pool.word(other.sandbox, "welcome", { generation: 1, dead_man_ms: 60_000 });
  });

  test("a refused enrolment is the pool's own typed error, and leaves no connection", async () => {
    pool.refuse = new Error("no such sandbox");
    try {
      expect(await codeOf(boot(server, user))).toBe("boot_failed");
    } finally {
      pool.refuse = undefined;
    }
  });

  test("an executor that is made meanwhile is made once, and its failure is the boot's", async () => {
    let made = 0;
    const executor = new ScriptedExecutor();
    const { endpoint } = await booted({
      executor: async () => {
        made++;
        return executor;
      },
    });
    await endpoint.close();
    expect([made, executor.closedWith]).toEqual([1, 100]);
    const broken = boot(server, user, {
      executor: async () => {
        throw new UnsupportedError("no engine");
      },
    });
    expect(await codeOf(broken)).toBe("unsupported");
    const dead = bootstrapOf(server, "sb-nowhere", { urls: ["nats://127.0.0.1:1"], boot_timeout_ms: 100 });
    const never = async (): Promise<ScriptedExecutor> => {
      made++;
      return executor;
    };
    expect(await codeOf(openEndpoint({ bootstrap: dead, executor: never }))).toBe("connection_failed");
    expect(made).toBe(1);
  });

  test("a boot without a server ends within its limit, and at once when given up", async () => {
    const bootstrap = bootstrapOf(server, "sb-nowhere", {
      urls: ["nats://127.0.0.1:1"],
      boot_timeout_ms: 300,
    });
    expect(await codeOf(openEndpoint({ bootstrap, executor: new ScriptedExecutor() }))).toBe(
      "connection_failed",
    );
    const stop = new AbortController();
    const forever = openEndpoint({
      bootstrap: { ...bootstrap, boot_timeout_ms: 600_000 },
      executor: new ScriptedExecutor(),
      signal: stop.signal,
    });
    stop.abort();
    expect(await codeOf(forever)).toBe("canceled");
  });
});

describe("fences", () => {
  test("an older generation, another lease and another life are refused, and nothing runs", async () => {
    const { sandbox, caller, executor, endpoint } = await booted();
    const lease = newId();
    pool.word(sandbox, "grant", { lease, generation: 3, dead_man_ms: 60_000 });
    await until("the grant", () => endpoint.generation === 3);
    const argv = ["x"];
    const { incarnation } = endpoint;
    const lost = "lease_lost no";
    expect(await codeOf(caller.ask("exec", { argv, generation: 2 }))).toBe(lost);
    expect(await codeOf(caller.ask("exec", { argv, lease: newId() }))).toBe(lost);
    expect(await codeOf(caller.ask("exec", { argv, incarnation: "other" }))).toBe(lost);
    expect(await codeOf(caller.ask("exec", { argv, id: newId(), incarnation: "other" }))).toBe(
      "unknown_command unknown",
    );
    expect(await codeOf(caller.ask("attach", { id: newId(), incarnation: "other" }))).toBe(
      "unknown_command unknown",
    );
    expect(executor.commands).toHaveLength(0);
    expect(await codeOf(caller.ask("ping", { lease, generation: 3, incarnation }))).toBe("answered");
  });

  test("a request that overtakes the word of its grant waits for it; a false one does not run", async () => {
    const { sandbox, caller, endpoint, executor } = await booted();
    const lease = newId();
    const early = [caller.ask("ping", { generation: 2 }), caller.ask("ping", { lease })];
    const wrong = codeOf(caller.ask("exec", { argv: ["x"], generation: 2, lease: newId() }));
    await until("their arrival", () => endpoint.counters.requests >= 3);
    pool.word(sandbox, "grant", { lease, generation: 2, dead_man_ms: 60_000 });
    expect((await Promise.all(early)).map((answer) => answer.generation)).toEqual([2, 2]);
    expect(await wrong).toBe("lease_lost no");
    expect(await codeOf(caller.ask("exec", { argv: ["x"], generation: 9 }))).toBe("lease_lost no");
    expect(executor.commands).toHaveLength(0);
  });

  test("a word of an older generation, a malformed and an unknown one do nothing", async () => {
    const { sandbox, endpoint, caller } = await booted();
    pool.word(sandbox, "grant", { lease: newId(), generation: 5, dead_man_ms: 60_000 });
    pool.word(sandbox, "release", { generation: 4, reason: "old" });
    pool.word(sandbox, "renew", { generation: 4, dead_man_ms: 0 });
    pool.word(sandbox, "release", { generation: "5" });
    pool.word(sandbox, "explode", { generation: 5 });
    await until("the grant", () => endpoint.generation === 5);
    expect(await caller.ask("ping")).toMatchObject({ generation: 5 });
  });
});

describe("answers", () => {
  test("nothing runs for a request that cannot be answered, or would be answered elsewhere", async () => {
    const { caller, executor, endpoint, sandbox } = await booted();
    const body = encode({ argv: ["x"] });
    user.publish(caller.subject("exec"), body);
    for (const reply of [
      `sbx.v1.${TENANT}.sb-other.exec`,
      `rep.v1.other.${sandbox}.ann.1`,
      `rep.v1.${TENANT}.sb-other.ann.1`,
      `ctl.v1.${TENANT}.${sandbox}.release`,
    ]) {
      user.publish(caller.subject("exec"), body, { reply });
    }
    await caller.ask("ping");
    expect(endpoint.counters.unanswerable).toBe(5);
    expect(executor.commands).toHaveLength(0);
  });

  test("a person's JSON is answered in JSON", async () => {
    const { caller, sandbox } = await booted();
    const message = await user.request(sandbox, caller.subject("ping"), Buffer.from("{}"), {
      timeoutMs: 5_000,
    });
    expect(JSON.parse(Buffer.from(message.data).toString())).toMatchObject({ sandbox });
  });

  test("an unknown verb, and a fault of the executor's own, are typed answers", async () => {
    const { caller, executor } = await booted();
    expect(await codeOf(caller.ask("teleport"))).toBe("unknown_verb");
    expect(await codeOf(caller.ask("stat", { path: "/" }))).toBe("internal");
    executor.script = () => {
      throw new Error("a bug");
    };
    expect(await codeOf(caller.ask("exec", { argv: ["x"] }))).toBe("internal");
    expect(await codeOf(caller.ask("ping"))).toBe("answered");
  });
});

describe("the end", () => {
  const ending = async () => {
    const ends: End[] = [];
    const made = await booted({ onEnd: (end) => ends.push(end) });
    return { ...made, ends };
  };

  test("release ends what runs, says nothing more, and is told once", async () => {
    const { sandbox, executor, endpoint, ends, caller } = await ending();
    const running = caller.ask("exec", { argv: ["x"] });
    const outcome = codeOf(running);
    await until("the command", () => executor.commands.length === 1);
    pool.word(sandbox, "release", { generation: 1, reason: "expired" });
    expect(await endpoint.ended).toEqual({ why: "released", reason: "expired" });
    executor.last.exit();
    expect(executor.closedWith).toBe(100);
    expect(ends).toHaveLength(1);
    expect(await codeOf(caller.ask("ping"))).toBe("unreachable");
    const settled = await Promise.race([outcome, Promise.resolve("silent")]);
    expect(settled).toBe("silent");
  });

  test("an executor that does not close in time does not keep the sandbox", async () => {
    const executor = new ScriptedExecutor();
    executor.closing = new Promise(() => {});
    const { sandbox, endpoint, caller } = await booted({}, executor);
    pool.word(sandbox, "release", { generation: 1, reason: "expired" });
    expect((await endpoint.ended).why).toBe("released");
    expect(await codeOf(caller.ask("ping"))).toBe("unreachable");
  });

  test("without a word of the pool the dead man's switch ends it; a renewal puts it off", async () => {
    const { sandbox, endpoint, ends } = await ending();
    pool.word(sandbox, "welcome", { generation: 1, dead_man_ms: 50 });
    pool.word(sandbox, "renew", { generation: 1, dead_man_ms: 60_000 });
    const other = await ending();
    pool.word(other.sandbox, "welcome", { generation: 1, dead_man_ms: 100 });
    expect(await other.endpoint.ended).toEqual({ why: "dead_man", reason: "dead_man" });
    expect(other.executor.closedWith).toBeDefined();
    expect(ends).toEqual([]);
    pool.word(sandbox, "renew", { generation: 1, dead_man_ms: 10 });
    expect((await endpoint.ended).why).toBe("dead_man");
  });

  test("a user cannot give the pool's words", async () => {
    const { sandbox, caller } = await ending();
    const denied = await server.user(TENANT, "eve", { onError: () => {} });
    denied.publish(
      controlSubject(TENANT, sandbox, "release"),
      encode({ version: 1, generation: 1, reason: "x" }),
    );
    await denied.flush();
    expect(await codeOf(caller.ask("ping"))).toBe("answered");
  });
});

test("a lost connection: the command goes on, its answer comes after, and ready is said again", async () => {
  const { caller, executor, sandbox, endpoint } = await booted();
  pool.word(sandbox, "welcome", { generation: 1, dead_man_ms: 60_000 });
  const id = newId();
  // Its own answer may come before the caller is back, and is then lost; the id brings it again.
  void codeOf(caller.ask("exec", { id, argv: ["x"] }));
  await until("the command", () => executor.commands.length === 1);
  const before = pool.readies.filter((ready) => ready.sandbox === sandbox).length;
  await server.kill();
  executor.last.write("kept");
  executor.last.exit(4);
  await server.restart();
  await until("ready again", () => pool.readies.filter((r) => r.sandbox === sandbox).length > before);
  const again = await caller.ask("exec", { id, argv: ["x"] });
  expect(again).toMatchObject({ outcome: { type: "exited", code: 4 }, incarnation: endpoint.incarnation });
  expect(Buffer.from(again.stdout as Uint8Array).toString()).toBe("kept");
  expect(executor.commands).toHaveLength(1);
}, 30_000);
