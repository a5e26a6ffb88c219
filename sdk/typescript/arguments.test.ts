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

// biome-ignore lint/suspicious/noExplicitAny: these are the calls that the types forbid
const wrong = (value: unknown): any => value;

/** A connection that must not be used. */
const caller = new Proxy({} as Caller, {
  get(_, name) {
    if (name === "throwIfClosed") return () => undefined;
    if (name === "link") return { onStatus: () => undefined };
    return () => {
      throw new Error(`${String(name)} of the connection was used`);
    };
  },
});
const link = new Proxy({} as Link, {
  get(_, name) {
    if (name === "tenant") return "t";
    if (name === "gone") return undefined;
    if (name === "closed") return new Promise(() => undefined);
    return name === "request" ? caller.sandbox : () => undefined;
  },
});
const pulse = new Pulse();
const box = new Box(new Caller(link), pulse, new Lifeline(), { sandbox: "sb-1", fence: {} });
const files = new Files(box);
const sandbox = new Sandbox(box, wrong({}));
const settings = { urls: ["nats://127.0.0.1:1"], credentials: "", tenant: "t", user: "u" };
const mesh = new Mesh(settings, caller, new Pulse(), { handleSignals: false });
const ID = "01920c6a-7b1e-7c3d-8e4f-5a6b7c8d9e0f";

test.each<[what: string, field: string, call: () => unknown]>([
  ["exec(undefined)", "command", () => prepare(wrong(undefined), {})],
  ["exec(5)", "command", () => prepare(wrong(5), {})],
  ["exec([5])", "command", () => prepare(wrong(["ls", 5]), {})],
  ["exec of half a surrogate pair", "command", () => prepare(["printf", "\ud800"], {})],
  ["a line with half a pair", "command", () => prepare("echo \udfff", {})],
  ["half a pair in stdin", "stdin", () => prepare("cat", { stdin: "\ud800" })],
  ["half a pair in env", "env.A", () => prepare("env", { env: { A: "\ud800" } })],
  ["half a pair in cwd", "cwd", () => prepare("env", { cwd: "/\ud800" })],
  ["half a pair in content", "content", () => files.write("f", "\ud800")],
  ["half a pair in a path", "path", () => new Caller(link).sandbox(box.target, "stat", { path: "/\ud800" })],
  ["half a pair in a path to read", "path", () => files.read("/\ud800")],
  ["stdin: 5", "stdin", () => prepare("cat", { stdin: wrong(5) })],
  ["stdin: {}", "stdin", () => prepare("cat", { stdin: wrong({}) })],
  ["env: { A: 1 }", "env.A", () => prepare("env", { env: wrong({ A: 1 }) })],
  ["env: a list", "env", () => prepare("env", { env: wrong(["A=1"]) })],
  ["timeOut", "timeOut", () => prepare("ls", wrong({ timeOut: 5 }))],
  ["options: null", "options", () => prepare("ls", wrong(null))],
  ["signal: SIGINT", "signal", () => prepare("ls", { signal: wrong("SIGINT") })],
  ["timeout: null", "timeout", () => prepare("ls", { timeout: wrong(null) })],
  ["timeout: 0", "timeout", () => prepare("ls", { timeout: 0 })],
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
  [
    "terminal({ rows: Symbol() })",
    "rows",
    () => sandbox.terminal({ rows: wrong(Symbol()), command: ["sh"] }),
  ],
  ["onLost(5)", "tell", () => sandbox.onLost(wrong(5))],
  ["release(undefined)", "what", () => mesh.release(wrong(undefined))],
  ["run(…, { leaseMs })", "leaseMs", () => mesh.run("r", wrong({ leaseMs: 1 }))],
  ["run('A b')", "run", () => mesh.run("A b")],
  ...[
    "cwd",
    "keep",
    "merge",
    "wait",
    "user",
    "umask",
    "nice",
    "rlimits",
    "id",
    "session",
    "envReplace",
  ].flatMap((field): [string, string, () => unknown][] =>
    [Symbol("s"), () => 1, 10n].map((value) => [
      `${field}: a ${typeof value}`,
      field,
      () => prepare("ls", wrong({ [field]: value })),
    ]),
  ),
  ...(["read", "readText", "stat", "exists", "list", "remove", "sha256", "mkdir"] as const).flatMap(
    (verb): [string, string, () => unknown][] => [
      [`${verb}(Symbol())`, "path", async () => files[verb](wrong(Symbol("s")))],
      [`${verb}(path, null)`, "options", async () => files[verb]("x", wrong(null))],
    ],
  ),
  [
    "pack(Symbol())",
    "path",
    () =>
      files
        .pack(wrong(Symbol("s")))
        [Symbol.asyncIterator]()
        .next(),
  ],
  [
    "watch(Symbol())",
    "path",
    () =>
      files
        .watch(wrong(Symbol("s")))
        [Symbol.asyncIterator]()
        .next(),
  ],
  ["exec(…, null)", "options", () => sandbox.exec("true", wrong(null))],
  ["stream(…, null)", "options", () => sandbox.stream("true", wrong(null))],
  ["start(…, null)", "options", () => sandbox.start("true", wrong(null))],
  ["shell(null)", "options", () => sandbox.shell(wrong(null))],
  ["list(null)", "options", () => mesh.list(wrong(null))],
  ["events(null)", "filter", () => mesh.events(wrong(null)).next()],
  ...["granted", 5, null, {}, [], [5], ["nonsense"], ["lost", "nonsense"], new Set(["nonsense"])].map(
    (what): [string, string, () => unknown] => [
      `events({ what: ${what instanceof Set ? "a set of nonsense" : JSON.stringify(what)} })`,
      "what",
      () => mesh.events({ what: wrong(what) }).next(),
    ],
  ),
  ["chmod(…, undefined)", "mode", () => files.chmod("f", wrong(undefined))],
  ...[undefined, null, -1, "", true, {}, []].map((owner): [string, string, () => unknown] => [
    `chown(…, ${JSON.stringify(owner)})`,
    "owner",
    () => files.chown("f", wrong(owner)),
  ]),
  [
    "attach({ from: null })",
    "from.stdout",
    () => new Command(box, ID).attach({ from: wrong({ stdout: -1 }) }),
  ],
  ["command(Symbol())", "id", () => sandbox.command(wrong(Symbol("s")))],
  ...[undefined, null, Number.NaN, -1, 0, 1.5, 65536, "80", {}].flatMap(
    (port): [string, string, () => unknown][] => [
      [`forward(${port})`, "port", () => sandbox.forward(wrong(port))],
      [`expose(${port})`, "localPort", () => sandbox.expose(wrong(port))],
      ...(port === undefined || port === 0
        ? []
        : ([
            [
              `forward(…, { localPort: ${port} })`,
              "localPort",
              () => sandbox.forward(1, { localPort: wrong(port) }),
            ],
            [`expose(…, { port: ${port} })`, "port", () => sandbox.expose(1, { port: wrong(port) })],
          ] as [string, string, () => unknown][])),
    ],
  ),
  ...[null, "", "a\0b", "\ud800", 5, Symbol("s"), "h".repeat(256)].flatMap(
    (host): [string, string, () => unknown][] => [
      [`forward(…, { host: ${typeof host} })`, "host", () => sandbox.forward(1, { host: wrong(host) })],
      [
        `forward(…, { localHost: ${typeof host} })`,
        "localHost",
        () => sandbox.forward(1, { localHost: wrong(host) }),
      ],
      [`expose(…, { host: ${typeof host} })`, "host", () => sandbox.expose(1, { host: wrong(host) })],
      [
        `expose(…, { localHost: ${typeof host} })`,
        "localHost",
        () => sandbox.expose(1, { localHost: wrong(host) }),
      ],
    ],
  ),
  ["forward(80, null)", "options", () => sandbox.forward(80, wrong(null))],
  ["expose(80, null)", "options", () => sandbox.expose(80, wrong(null))],
  ["forward(…, { localHost: elsewhere })", "localHost", () => sandbox.forward(1, { localHost: "192.0.2.1" })],
  ["acquire({ timeout: 0 })", "timeout", () => mesh.acquire({ image: "host", timeout: "0s" })],
  ["acquire({ timeout: 2 ** 53 })", "timeout", () => mesh.acquire({ image: "host", timeout: 2 ** 53 })],
  ["acquire({ lease: 2 ** 53 })", "lease", () => mesh.acquire({ image: "host", lease: 2 ** 53 })],
  ["acquire({ maxLife: 2 ** 53 })", "maxLife", () => mesh.acquire({ image: "host", maxLife: 2 ** 53 })],
  ["command('x')", "id", () => sandbox.command("x")],
  ["connect({ uri })", "uri", () => resolveSettings(wrong({ uri: "nats://x" }), {})],
  ["connect({ url: 5 })", "url", () => resolveSettings(wrong({ url: 5 }), {})],
])("%s is an invalid_request that names %s", async (_, field, call) => {
  const failed = await (async () => await call())().catch((error: unknown) => error);
  expect(failed).toMatchObject({ code: "invalid_request", field });
  // What waits keeps the process alive.
  expect(pulse.waiting).toBe(0);
});
