// Virtual sandboxes on a real server: boot, answer, transfer, trouble, and being gone.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import * as v from "valibot";
import { newUuidV7 } from "../../../broker/contract/index.ts";
import { tarHeader } from "../../../broker/contract/tar/header.ts";
import { mapBlock } from "../../../broker/contract/tar/sparse.ts";
import { bootstrapOf, Caller, PoolDouble, TENANT, until } from "../../../broker/endpoint/testing.ts";
import type { Link } from "../../../broker/link/link.ts";
import { type TestServer, testServer } from "../../../broker/server/testing.ts";
import { unheard } from "../../testing/request.ts";
import type { ProviderEvent } from "../provider.ts";
import { FateSettings, fateOf } from "./fate.ts";
import { pattern } from "./programs.ts";
import { createSimulatedProvider } from "./provider.ts";
import { LocalWorld } from "./world.ts";

let server: TestServer;
let pool: PoolDouble;
let user: Link;
beforeAll(async () => {
  server = await testServer();
  pool = await PoolDouble.start(server);
  pool.grants = newUuidV7();
  user = await server.user(TENANT, "ann");
});
afterAll(() => server.close());

const signal = () => AbortSignal.timeout(30_000);
const codeOf = async (work: Promise<unknown>) =>
  work.then(
    () => "answered",
    (error: { code: string; reason?: string }) => [error.code, error.reason].filter(Boolean).join(" "),
  );

let count = 0;
class Worlds implements AsyncDisposable {
  readonly world: LocalWorld;
  readonly events: ProviderEvent[] = [];
  constructor(settings: v.InferInput<typeof FateSettings> = {}) {
    this.world = new LocalWorld(v.parse(FateSettings, settings));
    this.world.watch((event) => this.events.push(event));
  }
  async create(maxLifeMs = 600_000): Promise<Caller> {
    const sandbox = `sb-virtual${++count}`;
    const bootstrap = bootstrapOf(server, sandbox, { cwd: "/work", env: { NAME: "value" } });
    await this.world.create({ sandbox, tenant: TENANT, bootstrap, maxLifeMs }, signal());
    return new Caller(user, sandbox);
  }
  async ready(): Promise<Caller> {
    const caller = await this.create();
    await until("ready", () => pool.readies.some(({ sandbox }) => sandbox === caller.sandbox));
    return caller;
  }
  async [Symbol.asyncDispose](): Promise<void> {
    await this.world.end();
  }
}

test("of many removed together those that cannot be yet are told by themselves, and the others are gone", async () => {
  const settings = { removeFails: 0.5 };
  const world = new LocalWorld(v.parse(FateSettings, settings));
  const provider = await createSimulatedProvider(settings, [world]);
  const all = Array.from({ length: 20 }, (_, i) => ({ sandbox: `sb-many${i}`, uid: undefined }));
  const stays = all.filter(({ sandbox }) => fateOf(sandbox, v.parse(FateSettings, settings)).removeFails);
  expect([stays.length > 0, stays.length < all.length]).toEqual([true, true]);
  for (const { sandbox } of all) await provider.create(unheard(sandbox, { image: "any" }), signal());
  const answers = await Promise.allSettled(provider.removeMany(all, signal()));
  const failed = all.filter((_, i) => answers[i]?.status === "rejected");
  expect(failed).toEqual(stays);
  expect((await provider.list(signal())).map(({ sandbox }) => sandbox)).toEqual(
    stays.map(({ sandbox }) => sandbox),
  );
  await Promise.all(provider.removeMany(stays, signal()));
  expect(await world.list()).toEqual([]);
});

test("200 virtual sandboxes boot, answer as themselves, and are gone", async () => {
  await using worlds = new Worlds();
  const callers = await Promise.all(Array.from({ length: 200 }, () => worlds.create()));
  const names = new Set(callers.map(({ sandbox }) => sandbox));
  const isReady = () => pool.readies.filter(({ sandbox }) => names.has(sandbox)).length >= 200;
  await until("all ready", isReady, 30_000);
  const answers = await Promise.all(
    callers.map((caller) => caller.ask("exec", { argv: ["echo", caller.sandbox] })),
  );
  for (const [i, answer] of answers.entries()) {
    expect(Buffer.from(answer.stdout as Uint8Array).toString()).toBe(`${callers[i]?.sandbox}\n`);
  }
  expect((await worlds.world.list()).map(({ phase }) => phase)).toEqual(Array(200).fill("running"));
  await Promise.all(callers.map(({ sandbox }) => worlds.world.remove(sandbox, undefined)));
  expect(await worlds.world.list()).toEqual([]);
  const after = await Promise.all(callers.map((caller) => codeOf(caller.ask("ping"))));
  expect(new Set(after)).toEqual(new Set(["unreachable"]));
}, 60_000);

describe("the interpreter", () => {
  test("does what its programs say, and refuses what it does not understand", async () => {
    await using worlds = new Worlds();
    const caller = await worlds.ready();
    const run = async (request: object) => {
      const { outcome, stdout, stderr } = await caller.ask("exec", request);
      const text = (bytes: unknown) => (bytes instanceof Uint8Array ? Buffer.from(bytes).toString() : "");
      return { ...Object(outcome), out: text(stdout), err: text(stderr) };
    };
    const exited = (code: number, out = "", err = "") => ({ type: "exited", code, out, err });
    expect(await run({ argv: ["true"] })).toEqual(exited(0));
    expect(await run({ argv: ["/bin/false"] })).toEqual(exited(1));
    expect(await run({ shell: "false && echo no || echo 'a  b'; exit 7; echo never" })).toEqual(
      exited(7, "a  b\n"),
    );
    expect(await run({ argv: ["printf", "%s=%d\\n", "x", "3"] })).toEqual(exited(0, "x=3\n"));
    expect(await run({ argv: ["cat"], stdin: Buffer.from("in") })).toEqual(exited(0, "in"));
    expect(await run({ shell: "pwd; env", env: { PATH: null } })).toEqual(exited(0, "/work\nNAME=value\n"));
    expect(await run({ shell: "gcc" })).toEqual(exited(127, "", "gcc: not found\n"));
    expect(await run({ shell: "echo $HOME" })).toMatchObject({ type: "exited", code: 2, out: "" });
    expect(await run({ argv: ["gcc"] })).toMatchObject({ type: "not_started", reason: "no_such_program" });
    expect(await run({ argv: ["true"], cwd: "/no" })).toMatchObject({ reason: "no_such_cwd" });
    expect(await run({ argv: ["hang"], timeout_ms: 20 })).toMatchObject({ type: "timed_out", after_ms: 20 });
    expect(await run({ argv: ["sleep", "5ms"] })).toEqual(exited(0));
    expect(await run({ argv: ["sleep", "20ms"], timeout_ms: 2_592_000_000 })).toEqual(exited(0));
    expect(await run({ argv: ["sleep", "9999999"], timeout_ms: 20 })).toMatchObject({ type: "timed_out" });
    await caller.ask("session_open", { session: "s" });
    await run({ shell: "cd /", session: "s" });
    expect(await run({ shell: "pwd", session: "s" })).toEqual(exited(0, "/\n"));
    expect(await codeOf(run({ shell: "pwd", session: "t" }))).toBe("session_closed closed");
  });

  test("cancel, signals and a big output through a slow reader", async () => {
    await using worlds = new Worlds();
    const caller = await worlds.ready();
    for (const [verb, more, outcome] of [
      ["cancel", {}, { type: "canceled" }],
      ["signal", { signal: "SIGINT" }, { type: "signaled", signal: "SIGINT" }],
    ] as const) {
      const id = newUuidV7();
      const answer = caller.ask("exec", { id, argv: ["hang"] });
      expect(await caller.ask(verb, { id, ...more })).toEqual({ running: true });
      expect(await answer).toMatchObject({ outcome });
    }
    const bytes = 20 * 1024 * 1024;
    const request = { argv: ["output", `${bytes}`], credit_bytes: 200_000, output_limit_bytes: bytes };
    const frames = caller.stream("exec", request).follow(200_000);
    await frames.ended;
    const text = frames.text("stdout");
    expect(text.length).toBe(bytes);
    expect(text === Buffer.from(pattern(0, bytes)).toString()).toBe(true);
  }, 30_000);
});

describe("files", () => {
  test("parts in any number, repeated and pipelined, make the file whole, and only with the last", async () => {
    await using worlds = new Worlds();
    const caller = await worlds.ready();
    const data = Buffer.from(pattern(0, 900_000));
    const transfer = newUuidV7();
    const part = (from: number, to: number) =>
      caller.ask("write", {
        path: "a/b",
        transfer,
        offset: from,
        data: data.subarray(from, to),
        last: to === 900_000,
      });
    await part(0, 300_000);
    expect(await codeOf(caller.ask("stat", { path: "a/b" }))).toBe("file_error ENOENT");
    expect(await codeOf(part(600_000, 900_000))).toBe("invalid_request");
    const parts = await Promise.all([part(0, 300_000), part(200_000, 600_000), part(600_000, 900_000)]);
    expect(parts.map(({ received, done }) => [received, done])).toEqual([
      [300_000, false],
      [600_000, false],
      [900_000, true],
    ]);
    // Its answer may have been lost.
    expect(await part(600_000, 900_000)).toEqual({ received: 900_000, done: true });
    expect(await codeOf(caller.ask("write", { path: "c", transfer, data: Buffer.alloc(1) }))).toBe(
      "conflict",
    );
    expect(await codeOf(caller.ask("read", { path: "a/b" }))).toBe("too_large");
    const frames = caller.stream("read", { path: "a/b", offset: 5, credit_bytes: 100_000 }).follow(100_000);
    expect(await frames.ended).toMatchObject({ type: "file_end", total_bytes: 899_995 });
    expect(frames.text("data") === data.subarray(5).toString()).toBe(true);
    const small = await caller.ask("read", { path: "a/b", offset: 16, length: 16 });
    expect(Buffer.from(small.data as Uint8Array).toString()).toBe(`${"1".padStart(15, "0")}\n`);
  });

  test("an aborted or unknown transfer is told from a gap, and leaves no file", async () => {
    await using worlds = new Worlds();
    const caller = await worlds.ready();
    const transfer = newUuidV7();
    const write = (more: object) =>
      codeOf(caller.ask("write", { path: "x", data: Buffer.from("ab"), ...more }));
    expect(await write({ transfer, offset: 4, last: true })).toBe("not_found");
    expect(await write({ transfer, last: false })).toBe("answered");
    await caller.ask("abort_transfer", { transfer });
    expect(await write({ transfer, offset: 2 })).toBe("not_found");
    expect(await codeOf(caller.ask("abort_transfer", { transfer }))).toBe("not_found");
    expect(await codeOf(caller.ask("stat", { path: "x" }))).toBe("file_error ENOENT");
    expect(await write({ last: false })).toBe("invalid_request");
  });

  test("a tree goes out and in again as tar; a name that leaves the folder does not", async () => {
    await using worlds = new Worlds();
    const caller = await worlds.ready();
    await caller.ask("write", { path: "t/one", data: Buffer.from("1"), mode: 0o755 });
    await caller.ask("write", { path: "t/d/two", data: Buffer.from("22") });
    const frames = caller.stream("pack", { path: "t" });
    const end = await frames.ended;
    const data = Buffer.from(end.data as Uint8Array);
    const unpack = (archive: Buffer) =>
      caller.ask("unpack", { path: "u", transfer: newUuidV7(), offset: 0, data: archive, last: true });
    expect(await unpack(data)).toEqual({ received: data.length, done: true });
    expect(await caller.ask("stat", { path: "u/one" })).toMatchObject({ size: 1, mode: 0o755 });
    expect(await caller.ask("list", { path: "u" })).toMatchObject({
      entries: [{ path: "d" }, { path: "one" }],
    });
    await caller.ask("rename", { from: "u", to: "w" });
    await caller.ask("remove", { path: "t", recursive: true });
    expect(await codeOf(caller.ask("stat", { path: "w/d/two" }))).toBe("answered");
    expect(await codeOf(caller.ask("stat", { path: "t" }))).toBe("file_error ENOENT");
    expect(await codeOf(unpack(Buffer.from("no tar".repeat(200))))).toBe("file_error EINVAL");
  });

  test("an archive's holes become zeros", async () => {
    await using worlds = new Worlds();
    const caller = await worlds.ready();
    const map = mapBlock([
      { offset: 4096, length: 3 },
      { offset: 10_000, length: 0 },
    ]);
    const about = { mode: 0o644, uid: 0, gid: 0, mtimeMs: 0, size: map.length + 3 };
    const header = tarHeader({ ...about, type: "file", name: Buffer.from("f"), sparse: { size: 10_000 } });
    const data = Buffer.concat([header, map, Buffer.from("abc"), Buffer.alloc(509), Buffer.alloc(1024)]);
    await caller.ask("unpack", { path: "u", transfer: newUuidV7(), offset: 0, data, last: true });
    const { data: read } = await caller.ask("read", { path: "u/f" });
    const wanted = Buffer.alloc(10_000);
    wanted.write("abc", 4096);
    expect(Buffer.compare(Buffer.from(read as Uint8Array), wanted)).toBe(0);
  });

  test("no path leaves a root", async () => {
    await using worlds = new Worlds();
    const caller = await worlds.ready();
    await caller.ask("write", { path: "t/d/f", data: Buffer.from("1") });
    await caller.ask("write", { path: "outside", data: Buffer.from("2") });
    const read = (path: string) => codeOf(caller.ask("read", { path, root: "t" }));
    expect([await read("d/f"), await read("d/../d/./f")]).toEqual(["answered", "answered"]);
    for (const path of ["../outside", "d/../../outside", "/outside", ".."])
      expect([path, await read(path)]).toEqual([path, "file_error EXDEV"]);
    expect(await codeOf(caller.ask("rename", { from: "d/f", to: "../f", root: "t" }))).toBe(
      "file_error EXDEV",
    );
  });
});

describe("trouble on demand", () => {
  test("the same seed gives the same fates, another one others", () => {
    const fates = (seed: number) => {
      const settings = v.parse(FateSettings, {
        seed,
        dies: 0.3,
        freezes: 0.2,
        bootMedianMs: 50,
        bootSpread: 1,
      });
      return Array.from({ length: 500 }, (_, i) => fateOf(`sb-${i}`, settings));
    };
    expect(fates(1)).toEqual(fates(1));
    expect(fates(1)).not.toEqual(fates(2));
    const dying = fates(1).filter(({ trouble }) => trouble === "dies").length;
    expect(dying).toBeGreaterThan(100);
    expect(dying).toBeLessThan(200);
    const boots = fates(1).map(({ bootMs }) => bootMs);
    expect(boots.sort((a, b) => a - b)[250]).toBeGreaterThan(30);
    expect(boots[250]).toBeLessThan(80);
  });

  test("one that dies is lost, one that fails to boot has failed, one never ready is silent, one frozen deaf", async () => {
    await using dying = new Worlds({ dies: 1, troubleMeanMs: 1 });
    const { sandbox } = await dying.create();
    await until("its loss", () => dying.events.find(({ type }) => type === "lost"));
    expect(await dying.world.list()).toMatchObject([{ sandbox, phase: "failed" }]);
    await using failing = new Worlds({ bootFails: 1 });
    await failing.create();
    expect(await until("failed", () => failing.events.find(({ type }) => type === "failed"))).toMatchObject({
      code: "boot_failed",
      reason: "exited",
    });
    await using silent = new Worlds({ neverReady: 1 });
    const mute = await silent.create();
    await until("its start", () => silent.events.find(({ type }) => type === "running"));
    expect(await codeOf(mute.ask("ping"))).toBe("unreachable");
    await using frozen = new Worlds({ freezes: 1, troubleMeanMs: 500 });
    const deaf = await frozen.ready();
    await until("its silence", async () => {
      const ping = user.request(deaf.sandbox, deaf.subject("ping"), Buffer.from("{}"), { timeoutMs: 200 });
      return (await codeOf(ping)) === "deadline_exceeded";
    });
  }, 20_000);

  test("a refused create makes nothing, a hanging one makes it, a refused remove keeps it", async () => {
    await using refusing = new Worlds({ createFails: 1 });
    expect(await codeOf(refusing.create())).toBe("provider_failed simulated");
    expect(await refusing.world.list()).toEqual([]);
    await using hanging = new Worlds({ createHangs: 1, removeFails: 1 });
    const sandbox = "sb-hanging";
    const bootstrap = bootstrapOf(server, sandbox);
    const stop = new AbortController();
    const request = { sandbox, tenant: TENANT, bootstrap, maxLifeMs: 60_000 };
    const creating = hanging.world.create(request, stop.signal);
    stop.abort(new Error("given up"));
    expect(await creating.catch((error: Error) => error.message)).toBe("given up");
    expect(await hanging.world.list()).toHaveLength(1);
    expect(await codeOf(hanging.world.remove(sandbox, undefined))).toBe("provider_failed simulated");
    expect(await hanging.world.list()).toHaveLength(1);
    await hanging.world.remove(sandbox, undefined);
    expect(await hanging.world.list()).toEqual([]);
  });
});
