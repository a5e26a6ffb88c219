// What programs in plain JavaScript hand in: each fault is a typed error that names it, before anything is sent.
import { expect, test } from "bun:test";
import type { Link } from "../../broker/link/link.ts";
import { Command } from "./command/command.ts";
import { prepare } from "./command/request.ts";
import { StdinWriter } from "./command/stdin.ts";
import { Files } from "./files/files.ts";
import { Mesh } from "./mesh.ts";
import { Sandbox } from "./sandbox.ts";
import { resolveSettings } from "./settings.ts";
import { specOf } from "./spec.ts";
import { Box } from "./wire/box.ts";
import { Caller } from "./wire/caller.ts";
import { Lifeline } from "./wire/lifeline.ts";
import { Pulse } from "./wire/pulse.ts";

/** A connection that must not be used. */
const caller = new Proxy({} as Caller, {
  get(_, name) {
    if (name === "throwIfClosed") return () => undefined;
    return () => {
      throw new Error(`${String(name)} of the connection was used`);
    };
  },
});
const link = new Proxy({} as Link, {
  get(_, name) {
    if (name === "tenant") return "t";
    if (name === "closed") return new Promise(() => undefined);
    return name === "request" ? caller.sandbox : () => undefined;
  },
});
const box = new Box(caller, new Pulse(), new Lifeline(), { sandbox: "sb-1", fence: {} });
const files = new Files(box);
const settings = { urls: ["nats://127.0.0.1:1"], credentials: "", tenant: "t", user: "u" };
const mesh = new Mesh(settings, caller, new Pulse(), { handleSignals: false });
const ID = "01920c6a-7b1e-7c3d-8e4f-5a6b7c8d9e0f";

// biome-ignore lint/suspicious/noExplicitAny: these are the calls that the types forbid
const wrong = (value: unknown): any => value;

test.each<[what: string, field: string, call: () => unknown]>([
  ["exec(undefined)", "command", () => prepare(wrong(undefined), {}, ID)],
  ["exec(5)", "command", () => prepare(wrong(5), {}, ID)],
  ["exec([5])", "command", () => prepare(wrong(["ls", 5]), {}, ID)],
  ["exec of half a surrogate pair", "command", () => prepare(["printf", "\ud800"], {}, ID)],
  ["a line with half a pair", "command", () => prepare("echo \udfff", {}, ID)],
  ["half a pair in stdin", "stdin", () => prepare("cat", { stdin: "\ud800" }, ID)],
  ["half a pair in env", "env.A", () => prepare("env", { env: { A: "\ud800" } }, ID)],
  ["half a pair in cwd", "cwd", () => prepare("env", { cwd: "/\ud800" }, ID)],
  ["half a pair in content", "content", () => files.write("f", "\ud800")],
  ["half a pair in a path", "path", () => new Caller(link).sandbox(box.target, "stat", { path: "/\ud800" })],
  ["half a pair in a path to read", "path", () => files.read("/\ud800")],
  ["stdin: 5", "stdin", () => prepare("cat", { stdin: wrong(5) }, ID)],
  ["stdin: {}", "stdin", () => prepare("cat", { stdin: wrong({}) }, ID)],
  ["env: { A: 1 }", "env.A", () => prepare("env", { env: wrong({ A: 1 }) }, ID)],
  ["env: a list", "env", () => prepare("env", { env: wrong(["A=1"]) }, ID)],
  ["timeOut", "timeOut", () => prepare("ls", wrong({ timeOut: 5 }), ID)],
  ["options: null", "options", () => prepare("ls", wrong(null), ID)],
  ["signal: SIGINT", "signal", () => prepare("ls", { signal: wrong("SIGINT") }, ID)],
  ["timeout: null", "timeout", () => prepare("ls", { timeout: wrong(null) }, ID)],
  ["stdin.write(5)", "data", () => new StdinWriter(box, ID, 0).write(wrong(5))],
  ["attach({ stdout })", "stdout", () => new Command(box, ID).attach(wrong({ stdout: 1 }))],
  ["wait({ timeout })", "timeout", () => new Command(box, ID).wait(wrong({ timeout: 1 }))],
  ["write(path, 5)", "content", () => files.write("f", wrong(5))],
  ["write(path, [5])", "content", () => files.write("f", wrong([5]))],
  ["write(…, { perms })", "perms", () => files.write("f", "x", wrong({ perms: 0o644 }))],
  ["read(…, { start })", "start", async () => files.read("f", wrong({ start: 1 }))],
  ["list(…, { recursive })", "recursive", () => files.list("f", wrong({ recursive: true }))],
  ["acquire()", "options", () => mesh.acquire(wrong(undefined))],
  ["acquire({ memroy })", "memroy", () => mesh.acquire(wrong({ image: "host", memroy: "1g" }))],
  ["acquireMany(1e12)", "count", () => mesh.acquireMany(1e12, { image: "host" })],
  ["acquireMany(NaN)", "count", () => mesh.acquireMany(Number.NaN, { image: "host" })],
  ["volumes: {}", "volumes", () => specOf({ image: "host", volumes: wrong({}) })],
  [
    "a volume's mount_path",
    "mount_path",
    () => specOf({ image: "host", volumes: wrong([{ mount_path: "/x" }]) }),
  ],
  ["sandbox(undefined)", "sandbox", () => mesh.sandbox(wrong(undefined))],
  ["release(undefined)", "what", () => mesh.release(wrong(undefined))],
  ["run(…, { leaseMs })", "leaseMs", () => mesh.run("r", wrong({ leaseMs: 1 }))],
  ["run('A b')", "run", () => mesh.run("A b")],
  ["command('x')", "id", () => new Sandbox(box, wrong({})).command("x")],
  ["connect({ uri })", "uri", () => resolveSettings(wrong({ uri: "nats://x" }), {})],
  ["connect({ url: 5 })", "url", () => resolveSettings(wrong({ url: 5 }), {})],
])("%s is an invalid_request that names %s", async (_, field, call) => {
  const failed = await (async () => await call())().catch((error: unknown) => error);
  expect(failed).toMatchObject({ code: "invalid_request", field });
});
