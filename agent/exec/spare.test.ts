// A shell line beside posix_spawn of the same shell: byte for byte the same, whether a spare shell took it or not.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { newUuidV7, signalName } from "../../broker/contract/index.ts";
import { muslBusybox } from "../../test/images/musl.ts";
import type { Engine } from "../native/engine.ts";
import type { Environment } from "../process/environment.ts";
import { Commands } from "./exec.ts";
import type { Shell } from "./shell.ts";
import { BASH_LINES, LINES } from "./shell-lines.testing.ts";
import { SIGKILL } from "./signals.ts";
import { alive, begin, type Running, run, testEngine, until } from "./testing.ts";

const ENVIRONMENT: Environment = new Map([
  ["PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
  ["HOME", "/root"],
  ["LANG", "C.UTF-8"],
  ["SHLVL", "4"],
  ["EMPTY", ""],
  ["_", "/somewhere/else"],
]);
const SHELLS: Shell[] = [
  { name: "bash", argv: ["/bin/bash"] },
  { name: "dash", argv: ["/bin/dash"] },
  { name: "busybox", argv: ["/usr/bin/busybox", "sh"] },
  { name: "busybox, linked to musl", argv: [muslBusybox(), "sh"] },
].filter(({ argv }) => Bun.file(argv[0] ?? "").size > 0);
/** A line longer than a spare takes gets a process of its own. */
const SPARE_LINE_BYTES = 3_955;

class OneShell extends Commands {
  readonly #shell: Shell;
  constructor(engine: Engine, shell: Shell, environment = ENVIRONMENT, cwd = "/") {
    super({ engine, environment, cwd });
    this.#shell = shell;
  }
  override shells(): Shell[] {
    return [this.#shell];
  }
}

interface Seen {
  outcome: unknown;
  stdout: string;
  stderr: string;
}

let folder: string;
let engine: Engine;
beforeAll(async () => {
  engine = await testEngine();
  folder = mkdtempSync(join(tmpdir(), "spare-test-"));
  const source = join(import.meta.dir, "reference.fixture.c");
  const built = Bun.spawnSync(["cc", "-O2", "-o", join(folder, "reference"), source]);
  expect(built.stderr.toString()).toBe("");
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** What differs from one process to the next, whoever starts it. */
function neutral(bytes: Uint8Array, pid: number, parent: number): string {
  return Buffer.from(bytes)
    .toString("latin1")
    .replaceAll(/\b(pipe|socket):\[\d+\]/g, "$1:[N]")
    .replaceAll("SigIgn:\t0000000180", "SigIgn:\t0000000000") // libc's own two, by its posix_spawn
    .replaceAll(/SigQ:\t\d+|\/proc\/\d+\/fd\n/g, "N")
    .replaceAll(/\b\d+\b/g, (number) =>
      Number(number) === pid ? "SHELL" : Number(number) === parent ? "PARENT" : number,
    )
    .replaceAll(/ +(SHELL|PARENT)/g, " $1");
}

function reference(shell: Shell, line: string, id: string): Seen {
  const files = ["stdout", "stderr"].map((name) => join(folder, name));
  const argv = [join(folder, "reference"), ...files, ...shell.argv, "-c", line];
  const env = { ...Object.fromEntries(ENVIRONMENT), SANDMESH_COMMAND: id };
  const ran = Bun.spawnSync(argv, { cwd: "/", env });
  expect(ran.exitCode).toBe(0);
  const [status = 0, pid = 0, parent = 0] = ran.stdout.toString().split(" ").map(Number);
  const [stdout, stderr] = files.map((file) => neutral(readFileSync(file), pid, parent));
  const signal = status & 0x7f;
  const outcome =
    signal === 0
      ? { type: "exited", code: status >> 8 }
      : { type: "signaled", signal: signalName(signal), core_dumped: (status & 0x80) !== 0 };
  return { outcome, stdout: stdout ?? "", stderr: stderr ?? "" };
}

/** A child of this process of that name; what stands ready has one of its own. */
const spares = (): number[] =>
  Bun.spawnSync(["pgrep", "-x", "sandmesh-spare", "-P", String(process.pid)])
    .stdout.toString()
    .split("\n")
    .filter((text) => text !== "")
    .map(Number);

/** Two lines of a kind, and the next one finds a shell. */
async function ready(commands: Commands): Promise<number> {
  for (let i = 0; i < 2; i++) await run(commands, { shell: ":" });
  await until("a spare shell", () => engine.hasSpare() === true);
  return spares()[0] ?? 0;
}

async function seen(commands: Commands, request: Record<string, unknown>): Promise<Seen & { pid: number }> {
  const { outcome, stdout, stderr, pid = 0 } = await run(commands, request);
  return {
    outcome,
    stdout: neutral(stdout, pid, process.pid),
    stderr: neutral(stderr, pid, process.pid),
    pid,
  };
}

describe.each(SHELLS)("$name", (shell) => {
  const lines = shell.name === "bash" ? [...LINES, ...BASH_LINES] : LINES;
  test.each(lines.map((line) => line.replaceAll("{}", shell.argv.join(" "))))("%j", async (line) => {
    const commands = new OneShell(engine, shell);
    const id = newUuidV7();
    const expected = reference(shell, line, id);
    const { pid: plain, ...own } = await seen(commands, { argv: [...shell.argv, "-c", line], id });
    expect(own).toEqual(expected);
    const spare = await ready(commands);
    expect(spare).not.toBe(plain);
    const { pid, ...taken } = await seen(commands, { shell: line, id });
    expect(taken).toEqual(expected);
    expect(pid === spare).toBe(Buffer.byteLength(line) <= SPARE_LINE_BYTES);
  });
});

describe("a spare shell is not given", () => {
  const [shell = { name: "", argv: [] }] = SHELLS;
  /** Runs a line that says who it is, and whether what stood ready did it. */
  async function takes(commands: Commands, spare: number, request: object = {}): Promise<boolean> {
    const { outcome, text, pid } = await run(commands, { shell: "echo $$ $PWD", ...request });
    expect(outcome).toEqual({ type: "exited", code: 0 });
    expect(text.startsWith(`${pid} `)).toBe(true);
    return pid === spare;
  }
  const other: [string, Record<string, unknown>][] = [
    ["another folder", { cwd: "/tmp" }],
    ["a variable", { env: { A: "1" } }],
    ["no environment", { env_replace: true, env: { PATH: "/bin:/usr/bin" } }],
    ["stdin", { stdin: Buffer.from("x") }],
    ["a umask", { umask: 0o77 }],
    ["a nice value", { nice: 5 }],
    ["a limit", { rlimits: { nofile: 99 } }],
    ["another user", { user: "0:0" }],
    ["a terminal", { pty: { rows: 24, cols: 80, term: "xterm" } }],
  ];
  test.each(other)("to a line with %s", async (_, request) => {
    const commands = new OneShell(engine, shell);
    expect(await takes(commands, await ready(commands), request)).toBe(false);
    expect(await takes(commands, await ready(commands))).toBe(true);
  });

  test("to a line with another folder, merged output or a variable, unless the one before had the same", async () => {
    const commands = new OneShell(engine, shell);
    for (const request of [{ cwd: "/tmp" }, { merge: true }, { env: { A: "1" } }]) {
      for (let i = 0; i < 2; i++) await takes(commands, 0, request);
      await until("a spare shell", () => engine.hasSpare() === true);
      expect(await takes(commands, spares()[0] ?? 0, request)).toBe(true);
    }
  });

  test.each(["SIGKILL", "SIGTERM", "SIGSTOP"])("after a %s", async (signal) => {
    const commands = new OneShell(engine, shell);
    const spare = await ready(commands);
    process.kill(spare, signal);
    await until("it has ended or stopped", () => {
      const stat = Bun.spawnSync(["ps", "-o", "stat=", "-p", String(spare)]).stdout.toString();
      return !/^[SRD]/.test(stat);
    });
    expect(await takes(commands, spare)).toBe(false);
    expect(await takes(commands, await ready(commands))).toBe(true);
  });

  test("where its folder is another by now", async () => {
    const cwd = join(folder, "moved");
    mkdirSync(cwd);
    const commands = new OneShell(engine, shell, ENVIRONMENT, cwd);
    const spare = await ready(commands);
    renameSync(cwd, `${cwd}.old`);
    mkdirSync(cwd);
    expect(await takes(commands, spare)).toBe(false);
    expect(await takes(commands, await ready(commands))).toBe(true);
  });

  test("where the shell's file is another by now", async () => {
    const path = join(folder, "own-shell");
    copyFileSync(shell.argv[0] ?? "", path);
    const commands = new OneShell(engine, { name: "own", argv: [path] });
    await until("it is older than what is made of it", () => Date.now() - statSync(path).ctimeMs > 200);
    const spare = await ready(commands);
    copyFileSync("/bin/dash", `${path}.new`);
    renameSync(`${path}.new`, path);
    expect(await takes(commands, spare)).toBe(false);
  });

  test("where the loader would have been told something", async () => {
    // What the tests before have left on its way ends before there is one of another kind, and that with a first line of a
    // third.
    const others = (name: string) => new OneShell(engine, shell, new Map([...ENVIRONMENT, [name, ""]]));
    await ready(others("SECOND"));
    await run(others("THIRD"), { shell: ":" });
    await until("none stands ready", () => spares().length === 0);
    const commands = new OneShell(engine, shell, new Map([...ENVIRONMENT, ["LD_PRELOAD", ""]]));
    for (let i = 0; i < 6; i++) {
      await run(commands, { shell: ":" });
      // To look takes longer than to make one.
      expect(spares()).toEqual([]);
    }
  });

  test("where the shell is a script, which is run all the same", async () => {
    const path = join(folder, "script-shell");
    writeFileSync(path, '#!/bin/sh\nexec /bin/sh "$@"\n', { mode: 0o755 });
    const commands = new OneShell(engine, { name: "script", argv: [path] });
    for (let i = 0; i < 6; i++) {
      const { outcome, text } = await run(commands, { shell: "echo right; exit 3" });
      expect([outcome, text]).toEqual([{ type: "exited", code: 3 }, "right\n"]);
    }
  });
});

// Others may trace only what they have started, where the kernel is strict.
describe.if(process.getuid?.() === 0)("a spare shell that has been given its line, and not taken it", () => {
  const [shell = { name: "", argv: [] }] = SHELLS;
  beforeAll(() => {
    const source = join(import.meta.dir, "hold.fixture.c");
    expect(Bun.spawnSync(["cc", "-O2", "-o", join(folder, "hold"), source]).stderr.toString()).toBe("");
  });

  /** Calls what comes back to kill it. */
  async function hold(pid: number): Promise<() => Promise<void>> {
    const holder = Bun.spawn([join(folder, "hold"), String(pid)], { stdin: "pipe", stdout: "pipe" });
    const { value } = await holder.stdout.getReader().read();
    expect(Buffer.from(value ?? []).toString()).toBe("held\n");
    return async () => {
      holder.stdin.write("x");
      holder.stdin.end();
      expect(await holder.exited).toBe(0);
    };
  }

  test("is killed: another process runs the line, once, and is whom signals and lists are about", async () => {
    const commands = new OneShell(engine, shell);
    const file = join(folder, "untaken");
    for (const line of ["echo $$ | tee -a $FILE; exit 3", "echo $$ | tee -a $FILE; kill -TERM $$"]) {
      writeFileSync(file, "");
      const request = { shell: line, env: { FILE: file } };
      for (let i = 0; i < 2; i++) await run(commands, { ...request, shell: ":" });
      await until("a spare shell", () => engine.hasSpare() === true);
      const spare = spares()[0] ?? 0;
      const kill = await hold(spare);
      const running = begin(commands, request);
      expect(await running.started).toBe(spare);
      await kill();
      const { outcome, text, pid } = await running.ended;
      expect(outcome).toMatchObject(
        line.endsWith("3") ? { type: "exited", code: 3 } : { type: "signaled", signal: "SIGTERM" },
      );
      expect([text, readFileSync(file, "utf8")]).toEqual([`${pid}\n`, `${pid}\n`]);
      expect(pid).not.toBe(spare);
    }
  });

  test("is ended by its time limit, a cancel or a signal of its caller's: the line does not run", async () => {
    const commands = new OneShell(engine, shell);
    const file = join(folder, "never");
    const line = `echo ran > ${file}`;
    const ways: [object, (running: Running) => void, object][] = [
      [{ timeout_ms: 200, grace_ms: 0 }, () => {}, { type: "timed_out" }],
      [{}, ({ command }) => command.cancel(), { type: "canceled" }],
      [{}, ({ command }) => void command.signal(SIGKILL), { type: "signaled", signal: "SIGKILL" }],
    ];
    for (const [request, act, outcome] of ways) {
      const spare = await ready(commands);
      const kill = await hold(spare);
      const running = begin(commands, { shell: line, ...request });
      await running.started;
      act(running);
      // Whoever holds it keeps its end from its parent.
      await until("it has ended", async () => !(await alive(spare)));
      await kill();
      expect((await running.ended).outcome).toMatchObject(outcome);
      expect(existsSync(file)).toBe(false);
    }
  });

  test("goes on when it is let go of: it is that process that runs the line", async () => {
    const commands = new OneShell(engine, shell);
    const spare = await ready(commands);
    const holder = Bun.spawn([join(folder, "hold"), String(spare)], { stdin: "pipe", stdout: "pipe" });
    await holder.stdout.getReader().read();
    const running = begin(commands, { shell: "echo $$; kill -9 $$" });
    await running.started;
    holder.stdin.end();
    await holder.exited;
    const { outcome, text } = await running.ended;
    expect([text, outcome]).toEqual([
      `${spare}\n`,
      { type: "signaled", signal: "SIGKILL", core_dumped: false },
    ]);
  });
});

test("of lines that come at once each runs once, whoever gets the spare shell", async () => {
  const [shell = { name: "", argv: [] }] = SHELLS;
  const commands = new OneShell(engine, shell);
  const file = join(folder, "once");
  for (let round = 0; round < 5; round++) {
    await ready(commands);
    writeFileSync(file, "");
    const names = Array.from({ length: 20 }, (_, i) => String(i));
    const ends = await Promise.all(
      names.map((i) => run(commands, { shell: `echo ${i} >> ${file}; echo ${i}` })),
    );
    expect(ends.map(({ text }) => text)).toEqual(names.map((i) => `${i}\n`));
    expect(readFileSync(file, "utf8").trimEnd().split("\n").sort()).toEqual([...names].sort());
  }
}, 60_000);
