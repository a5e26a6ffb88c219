// Commands through the SDK, against real processes.
import { expect, test } from "bun:test";
import { alive } from "../../../agent/exec/testing.ts";
import { until } from "../../../broker/server/testing.ts";
import {
  CanceledError,
  CommandFailedError,
  ConflictError,
  newUuidV7,
  SandboxLostError,
  UnknownCommandError,
} from "../../../sdk/typescript/mod.ts";
import { liveBox } from "./mesh.ts";

test("a shell line and an argv answer their outcome, and each stream's exact bytes", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const line = await sandbox.exec("printf '\\377\\000\\r\\n'; printf 'é' >&2; exit 7");
  expect(line.outcome).toEqual({ type: "exited", code: 7 });
  expect([line.exitCode, line.ok, line.truncated]).toEqual([7, false, false]);
  expect([...line.stdout.bytes]).toEqual([0xff, 0, 0x0d, 0x0a]);
  expect(line.stdout.text).toBe("\u{fffd}\0\r\n");
  expect(line.stderr.text).toBe("é");
  const argv = await sandbox.exec(["printf", "%s", "$HOME; *"]);
  expect([argv.ok, argv.stdout.text, argv.stderr.bytes.length]).toEqual([true, "$HOME; *", 0]);
});

test("what the caller asked for arrives: folder, environment, stdin, merged streams", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const result = await sandbox.exec("pwd; echo $A; cat; echo err >&2", {
    cwd: "/tmp",
    env: { A: "b c" },
    stdin: "from stdin\n",
    merge: true,
  });
  expect(result.stdout.text).toBe("/tmp\nb c\nfrom stdin\nerr\n");
  expect(result.stderr.bytes.length).toBe(0);
});

test("blank lines, CR LF, U+2028 and no last newline go both ways as they are, in whatever they are given by", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const odd = "\n\nfirst\r\n\n\u{2028}second\u{2029}\u{85}\n\n  last";
  expect((await sandbox.exec(["cat"], { stdin: odd })).stdout.text).toBe(odd);
  expect((await sandbox.exec(["printf", "%s", odd])).stdout.text).toBe(odd);
  expect((await sandbox.exec(`printf %s '${odd}'`)).stdout.text).toBe(odd);
  expect((await sandbox.exec('printf %s "$ODD"', { env: { ODD: odd } })).stdout.text).toBe(odd);
  let text = "";
  for await (const chunk of sandbox.stream("cat", { stdin: odd })) text += chunk.text;
  expect(text).toBe(odd);
  await using session = await sandbox.shell();
  expect((await session.exec(`printf %s '${odd}'`)).stdout.text).toBe(odd);
  expect((await session.exec("cat", { stdin: odd })).stdout.text).toBe(odd);
});

test("a program that is not there is an outcome, and with check an error that carries it", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const missing = await sandbox.exec(["no-such-program-here"]);
  expect(missing.outcome).toMatchObject({ type: "not_started", reason: "no_such_program" });
  expect(missing.exitCode).toBeUndefined();
  const failure = await sandbox.exec("echo why >&2; exit 4", { check: true }).catch((e: unknown) => e);
  expect(failure).toBeInstanceOf(CommandFailedError);
  expect(failure).toMatchObject({
    outcome: { type: "exited", code: 4 },
    started: "yes",
    sandbox: sandbox.id,
  });
  expect(String(failure)).toContain("exited 4: why");
});

test("a time limit ends the tree and answers with the output so far", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const result = await sandbox.exec("echo before; sleep 600 & echo $!; wait", { timeout: 300 });
  expect(result.outcome).toMatchObject({ type: "timed_out", after_ms: 300 });
  const [before, pid] = result.stdout.text.split("\n");
  expect(before).toBe("before");
  await until("the sleep is gone", async () => !(await alive(Number(pid))));
});

test("aborting ends the command's whole tree in the sandbox", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const control = new AbortController();
  const file = `/tmp/sandmesh-abort-${newUuidV7()}`;
  const running = sandbox
    .exec(`sleep 600 & echo $! > ${file}; wait`, { signal: control.signal })
    .catch((error: unknown) => error);
  const pid = await until("it runs", async () => {
    const text = await Bun.file(file)
      .text()
      .catch(() => "");
    return text.endsWith("\n") && Number(text);
  });
  control.abort();
  expect(await running).toBeInstanceOf(CanceledError);
  await until("the sleep is gone", async () => !(await alive(pid)));
  await sandbox.files.remove(file);
  const aborted = AbortSignal.abort();
  const early = await sandbox.exec("echo never", { signal: aborted }).catch((error: unknown) => error);
  expect(early).toMatchObject({ code: "canceled", started: "no" });
});

test("output far above one message is whole, and over the limit it is cut and said so", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const bytes = 5 * 1024 * 1024;
  const whole = await sandbox.exec(`head -c ${bytes} /dev/zero; head -c 600000 /dev/zero >&2`);
  expect([whole.stdout.bytes.length, whole.stderr.bytes.length, whole.truncated]).toEqual([
    bytes,
    600_000,
    false,
  ]);
  const head = await sandbox.exec("seq 1 1000000", { outputLimit: "64KiB" });
  expect(head.stdout.bytes.length).toBe(64 * 1024);
  expect(head.stdout.text.startsWith("1\n2\n")).toBe(true);
  expect(head.stdout.droppedBytes).toBe(6888896 - 64 * 1024);
  expect([head.stdout.droppedFrom, head.truncated]).toEqual([64 * 1024, true]);
  for (const limit of ["64KiB", "1MiB"]) {
    const tail = await sandbox.exec("seq 1 1000000", { outputLimit: limit, keep: "tail" });
    expect(tail.stdout.text.endsWith("999999\n1000000\n")).toBe(true);
    expect(tail.stdout.bytes.length + tail.stdout.droppedBytes).toBe(6888896);
  }
  const failed = await sandbox.exec("yes", { outputLimit: "64KiB", keep: "fail" });
  expect(failed.outcome).toMatchObject({ type: "output_limit", stream: "stdout", limit_bytes: 65536 });
});

test("a started command goes on by itself: attach, stdin, wait, signal and cancel by id", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const cat = await sandbox.start("echo hello; cat", { stdinOpen: true });
  expect(await alive(cat.pid ?? 0)).toBe(true);
  await cat.stdin.write("typed ");
  await cat.stdin.write("text\n");
  await cat.stdin.close();
  const elsewhere = sandbox.command(cat.id);
  expect((await elsewhere.wait()).stdout.text).toBe("hello\ntyped text\n");
  let rest = "";
  for await (const chunk of elsewhere.attach({ from: { stdout: 6 } })) rest += chunk.text;
  expect(rest).toBe("typed text\n");

  const sleeper = await sandbox.start(["sleep", "600"]);
  expect((await sandbox.commands()).find((each) => each.id === sleeper.id)?.running).toBe(true);
  for (const name of ["SIGNOPE", "SIGRTMIN+31", "USR1", ""])
    expect(await sleeper.signal(name).catch((error: unknown) => error), name).toMatchObject({
      code: "invalid_request",
      field: "signal",
    });
  expect(await sleeper.signal("SIGCONT")).toBe(true);
  expect(await sleeper.signal("SIGUSR1")).toBe(true);
  expect((await sleeper.wait()).outcome).toEqual({ type: "signaled", signal: "SIGUSR1", core_dumped: false });
  const second = await sandbox.start(["sleep", "600"]);
  expect(await second.cancel()).toBe(true);
  expect((await second.wait()).outcome.type).toBe("canceled");
  const missing = await sandbox.start(["no-such-program-here"]);
  expect(missing.pid).toBeUndefined();
  expect((await missing.wait()).outcome.type).toBe("not_started");
  const nobody = await sandbox
    .command(newUuidV7())
    .wait()
    .catch((error: unknown) => error);
  expect(nobody).toBeInstanceOf(UnknownCommandError);
});

test("a terminal has the size that was asked for, takes what is typed, and ends when closed", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  await using terminal = await sandbox.terminal({
    rows: 33,
    cols: 99,
    command: "stty size; read x; stty size; echo got $x",
  });
  let screen = "";
  for await (const chunk of terminal.output) {
    screen += chunk.text;
    if (screen.includes("33 99\r\n") && !screen.includes("typed")) {
      await terminal.resize(20, 50);
      await terminal.write("typed\r");
    }
  }
  expect(screen).toContain("20 50\r\n");
  expect(screen).toContain("got typed\r\n");
  expect((await terminal.end).ok).toBe(true);
});

test("the same id does not run a command twice; other content under it is a conflict", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const id = newUuidV7();
  const file = `/tmp/sandmesh-once-${id}`;
  const line = `echo ran >> ${file}; cat ${file}`;
  const first = await sandbox.exec(line, { id });
  const second = await sandbox.exec(line, { id });
  expect([first.stdout.text, second.stdout.text]).toEqual(["ran\n", "ran\n"]);
  expect(await sandbox.files.readText(file)).toBe("ran\n");
  expect(await sandbox.exec("true", { id }).catch((error: unknown) => error)).toBeInstanceOf(ConflictError);
  await sandbox.files.remove(file);
});

test("a handle by id works without a lease", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const bob = await sandbox.live.connect({}, "bob");
  const handle = bob.sandbox(sandbox.id);
  expect((await handle.exec("echo hi")).stdout.text).toBe("hi\n");
  expect((await handle.info()).sandbox).toBe(sandbox.id);
  expect(await handle.ping()).toBeGreaterThan(0);
  await handle.release();
  await until("the owner learns of it", () => sandbox.lost !== undefined);
  expect(sandbox.lost).toBeInstanceOf(SandboxLostError);
});
