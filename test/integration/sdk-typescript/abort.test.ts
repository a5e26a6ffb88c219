// Every call that may wait takes a signal and hears it at once, also where the server has fallen silent, and what it began
// is not left behind.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../../../broker/server/testing.ts";
import * as sdk from "../../../sdk/typescript/mod.ts";
import { connectTo } from "../../../sdk/typescript/testing/harness.ts";
import { Caller } from "../../../sdk/typescript/wire/caller.ts";
import { begin, type Call, expectCanceled, read, running, turns } from "./aborting.ts";
import { liveMesh } from "./mesh.ts";

const SPEC = { image: "host" } as const;
const LONG = 120_000;

/** The methods that may wait: the compiler finds them by what they return. */
type Waits<T> = {
  [K in keyof T & string]: T[K] extends (...args: never[]) => infer R
    ? R extends PromiseLike<unknown> | AsyncIterable<unknown>
      ? K
      : never
    : never;
}[keyof T & string];
type MethodsOf<C> = C extends abstract new (...args: never[]) => infer T ? Waits<T> : never;
/** Of every class that the SDK exports, each of those methods, and none else. */
type Table = {
  [C in keyof typeof sdk as [MethodsOf<(typeof sdk)[C]>] extends [never] ? never : C]: Record<
    MethodsOf<(typeof sdk)[C]>,
    Call
  >;
} & { Forward: Record<Waits<sdk.Forward>, Call> };

/** What the exported classes do without waiting. */
const INSTANT: Record<string, string[]> = {
  Mesh: ["run", "sandbox"],
  Sandbox: ["onLost", "command", "detach"],
  CommandStream: ["close"],
  Files: ["beneath"],
  Output: ["toString"],
  ExecResult: ["orThrow"],
};
/** Of these only the opening and closing of a local port is waited for, which no server can hold up. */
const BRIEF = ["Sandbox.forward", "Forward.close"];

let live: Awaited<ReturnType<typeof liveMesh>>;
let mesh: sdk.Mesh;
let box: sdk.Sandbox;
let folder: string;
beforeAll(async () => {
  live = await liveMesh();
  mesh = await live.connect();
  box = await mesh.acquire(SPEC);
  folder = await mkdtemp(join(tmpdir(), "sandmesh-abort-"));
}, LONG);
afterAll(async () => {
  await live[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
}, LONG);

/** All that a call needs is there before the server falls silent. */
async function prepare(): Promise<Table> {
  const [a, b, c, d, e] = await mesh.acquireMany(5, SPEC);
  if (a === undefined || b === undefined || c === undefined || d === undefined || e === undefined)
    throw new Error("fewer than were asked for");
  const run = mesh.run();
  const [first, second] = [mesh.run(), mesh.run()];
  await Promise.all([first.acquire(SPEC), second.acquire(SPEC)]);
  const closing = await live.connect();
  await closing.acquire(SPEC);
  const command = await box.start("sleep 600");
  const [canceled, fed, closed] = await Promise.all([
    box.start("sleep 600"),
    box.start("cat >/dev/null", { stdinOpen: true }),
    box.start("cat >/dev/null", { stdinOpen: true }),
  ]);
  const [session, over] = await Promise.all([box.shell(), box.shell()]);
  const [terminal, shut] = await Promise.all([box.terminal(), box.terminal()]);
  const forward = await e.forward(1);
  const local = join(folder, "local");
  await writeFile(local, "local");
  const { files } = box;
  return {
    Mesh: {
      acquire: (signal) => mesh.acquire({ ...SPEC, signal }),
      acquireMany: (signal) => mesh.acquireMany(2, { ...SPEC, signal }),
      list: (signal) => mesh.list({ signal }),
      status: (signal) => mesh.status({ signal }),
      renew: (signal) => mesh.renew(mesh.defaultRun, undefined, { signal }),
      release: (signal) => mesh.release(a, { signal }),
      events: (signal) => read(mesh.events({ signal })),
      drain: (signal) => mesh.drain({ on: false, signal }),
      close: (signal) => closing.close({ signal }),
      closeRun: (signal) => mesh.closeRun(mesh.run().id, signal),
    },
    Run: {
      acquire: (signal) => run.acquire({ ...SPEC, signal }),
      acquireMany: (signal) => run.acquireMany(2, { ...SPEC, signal }),
      list: (signal) => run.list({ signal }),
      renew: (signal) => run.renew(undefined, { signal }),
      events: (signal) => read(run.events({ signal })),
      release: (signal) => first.release({ signal }),
      close: (signal) => second.close({ signal }),
    },
    Sandbox: {
      exec: (signal) => box.exec("sleep 600", { signal }),
      stream: (signal) => read(box.stream("sleep 600", { signal })),
      start: (signal) => box.start("sleep 600", { signal }),
      commands: (signal) => box.commands({ signal }),
      shell: (signal) => box.shell({ signal }),
      terminal: (signal) => box.terminal({ signal }),
      forward: (signal) => box.forward(1, { signal }),
      expose: (signal) => box.expose(1, { signal }),
      ping: (signal) => box.ping({ signal }),
      info: (signal) => box.info({ signal }),
      release: (signal) => b.release({ signal }),
      close: (signal) => c.close({ signal }),
    },
    Command: {
      attach: (signal) => read(command.attach({ signal })),
      wait: (signal) => command.wait({ signal }),
      signal: (signal) => command.signal("SIGCONT", { signal }),
      cancel: (signal) => canceled.cancel({ signal }),
      resize: (signal) => terminal.command.resize(10, 10, { signal }),
    },
    CommandStream: { drain: (signal) => box.stream("sleep 600").drain({ signal }) },
    StdinWriter: {
      write: (signal) => fed.stdin.write("typed", { signal }),
      feed: (signal) => box.command(fed.id).stdin.feed([new Uint8Array(1)], true, signal),
      close: (signal) => box.command(closed.id).stdin.close({ signal }),
    },
    Session: {
      exec: (signal) => session.exec("sleep 600", { signal }),
      stream: (signal) => read(session.stream("sleep 600", { signal })),
      close: (signal) => over.close({ signal }),
    },
    Terminal: {
      write: (signal) => terminal.write("typed", { signal }),
      resize: (signal) => terminal.resize(10, 10, { signal }),
      close: (signal) => shut.close({ signal }),
    },
    Files: {
      read: (signal) => files.read("x", { signal }),
      readText: (signal) => files.readText("x", { signal }),
      readStream: (signal) => read(files.readStream("x", { signal })),
      write: (signal) => files.write("x", "y", { signal }),
      stat: (signal) => files.stat("x", { signal }),
      exists: (signal) => files.exists("x", { signal }),
      list: (signal) => files.list(".", { signal }),
      remove: (signal) => files.remove("x", { signal }),
      mkdir: (signal) => files.mkdir("folder", { signal }),
      rename: (signal) => files.rename("x", "z", { signal }),
      pack: (signal) => read(files.pack(".", { signal })),
      unpack: (signal) => files.unpack("folder", [new Uint8Array(1024)], { signal }),
      sha256: (signal) => files.sha256("x", { signal }),
      chmod: (signal) => files.chmod("x", 0o600, { signal }),
      chown: (signal) => files.chown("x", { uid: 0 }, { signal }),
      glob: (signal) => files.glob("*", { signal }),
      search: (signal) => files.search("x", ".", { signal }),
      watch: (signal) => read(files.watch(".", { signal })),
      upload: (signal) => files.upload(local, "x", { signal }),
      download: (signal) => files.download("x", join(folder, "down"), { signal }),
    },
    Forward: { close: (signal) => forward.close({ signal }) },
  };
}

async function sessions(): Promise<string[]> {
  const link = await live.server.user("acme", "ann");
  const asked = await new Caller(link).sandbox({ sandbox: box.id, fence: {} }, "sessions", {});
  await link.close();
  return asked.sessions.map(({ session }) => session);
}

describe("a server that has fallen silent", () => {
  let table: Table;
  beforeAll(async () => {
    table = await prepare();
  }, LONG);

  test("no exported method is missing from the table, whatever it returns", () => {
    for (const [name, each] of Object.entries(sdk)) {
      if (typeof each !== "function" || !/^class\b/.test(String(each)) || /Error$/.test(name)) continue;
      const { constructor: _, ...methods } = Object.getOwnPropertyDescriptors(each.prototype);
      const functions = Object.keys(methods).filter((key) => typeof methods[key]?.value === "function");
      const waiting = Object.keys(Object.entries(table).find(([key]) => key === name)?.[1] ?? {});
      expect([
        name,
        functions.filter((key) => !waiting.includes(key) && !INSTANT[name]?.includes(key)),
      ]).toEqual([name, []]);
    }
  });

  test(
    "each call that waits is canceled as soon as its signal aborts, and leaves nothing",
    async () => {
      const calls = Object.entries(table).flatMap(([of, methods]) =>
        Object.entries(methods).map(([method, call]): [string, Call] => [`${of}.${method}`, call]),
      );
      calls.push(["connect", (signal) => connectTo(live.server, { signal })]);
      const before = { commands: await running(box), sessions: await sessions() };
      process.kill(live.server.server.pid, "SIGSTOP");
      try {
        await expectCanceled(calls.map(([name, call]) => begin(name, call, true)));
        const atOnce = calls.map(([name, call]) => {
          const started = begin(name, call);
          started.control.abort("enough");
          return started;
        });
        await expectCanceled(atOnce);
        const waiting = calls
          .filter(([name]) => !BRIEF.includes(name))
          .map(([name, call]) => begin(name, call));
        await turns();
        expect(waiting.filter(({ pending }) => !pending).map(({ name }) => name)).toEqual([]);
        for (const { control } of waiting) control.abort("enough");
        await expectCanceled(waiting, "unknown");
      } finally {
        process.kill(live.server.server.pid, "SIGCONT");
      }
      // What the server had heard by then is taken back, and what ends things goes on.
      await until("commands", async () => (await running(box)).length === before.commands.length - 3, 30_000);
      await until("sessions", async () => (await sessions()).length === before.sessions.length - 1, 30_000);
      const names = (await box.files.list(".")).map(({ path }) => path.split("/").at(-1) ?? "");
      expect(names.filter((name) => !["folder", "x", "z"].includes(name))).toEqual([]);
      await until("sandboxes", async () => (await mesh.list()).length === 3, 30_000);
    },
    LONG,
  );
});
