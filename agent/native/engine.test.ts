// The engine's own promises, beside those that agent/exec tests through it.
import { expect, test } from "bun:test";
import { join } from "node:path";
import { begin, run, testCommands, testEngine, until } from "../exec/testing.ts";
import { mountHanging } from "../files/hanging.testing.ts";
import { closeAll, makePipe, readSome } from "../session/libc.ts";

/** Leaves 50 zombies, says their pids, and keeps them until it is ended. */
const ZOMBIES = `
import os, time
pids = []
for _ in range(50):
    pid = os.fork()
    if pid == 0: os._exit(0)
    pids.append(pid)
for pid in pids: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
print(*pids, flush=True)
time.sleep(60)
`;

test("a watch for a process that has just ended is told every time, or a cancel would wait for its whole grace", async () => {
  const engine = await testEngine();
  const running = begin(await testCommands(), { argv: ["python3", "-c", ZOMBIES] });
  await running.until("\n");
  const pids = running.stdout().toString().trim().split(" ").map(Number);
  let told = 0;
  const gone = (): void => {
    told++;
  };
  const rounds = 200;
  // In short bursts, since a watch that comes while the engine's thread is busy is not in danger.
  for (let round = 0; round < rounds; round++) {
    for (const pid of pids) expect(engine.waits.watch(pid, gone)).toBe(true);
    await Promise.resolve();
  }
  running.command.cancel();
  await running.ended;
  await until("each watch was told", () => told === rounds * pids.length);
});

const NO_SIGNALS = /^SigBlk:\t0+\nSigIgn:\t0+\nSigCgt:\t0+$/m;

test("a command blocks and ignores no signal that the daemon does, or it would outlive a broken pipe and a cancel", async () => {
  const commands = await testCommands();
  const request = { argv: ["cat", "/proc/self/status"] };
  const alone = await run(commands, request);
  expect(alone.stdout.toString()).toMatch(NO_SIGNALS);
  // The engine's thread starts these.
  const many = await Promise.all(Array.from({ length: 8 }, () => run(commands, request)));
  for (const { stdout } of many) expect(stdout.toString()).toMatch(NO_SIGNALS);
});

test("where a container's filter knows no clone3, commands run all the same, and with no signal of the daemon's", async () => {
  const fixture = join(import.meta.dir, "no-clone3.fixture.ts");
  const child = Bun.spawn([process.execPath, fixture], { stdout: "pipe", stderr: "inherit" });
  expect(await new Response(child.stdout).text()).toMatch(NO_SIGNALS);
  expect(await child.exited).toBe(0);
});

test("commands that begin together keep each byte, however soon they end and whoever holds their pipes then", async () => {
  const commands = await testCommands();
  const kinds: [line: string, stdout: string, stderr: string][] = [
    // Ended before its pipes are waited for, and more in them than is read at once.
    ["printf out; printf err >&2", "out", "err"],
    ["head -c 60000 /dev/zero | tr '\\0' x", "x".repeat(60_000), ""],
    // Larger than a pipe, which must be read while it runs.
    ["head -c 300000 /dev/zero | tr '\\0' x; echo e >&2", "x".repeat(300_000), "e\n"],
    // Its output is at its end before it is.
    ["echo first; exec >&- 2>&-; sleep 0.05", "first\n", ""],
    // Somebody else has the pipe when it ends.
    ["sleep 5 & echo held", "held\n", ""],
  ];
  const lines = Array.from({ length: 8 }, () => kinds).flat();
  const ends = await Promise.all(lines.map(([line]) => run(commands, { argv: ["/bin/sh", "-c", line] })));
  expect(ends.map((end) => [end.text, end.stderr.toString()])).toEqual(
    lines.map(([, stdout, stderr]) => [stdout, stderr]),
  );
  expect(ends.every(({ outcome }) => outcome.type === "exited" && outcome.code === 0)).toBe(true);
  await commands.close(100);
});

test("awake it waits for what is written meanwhile, and for no longer than was said: nothing else is done in that time", async () => {
  const engine = await testEngine();
  const pipe = makePipe();
  try {
    expect(engine.awaits(pipe.read, 1000)).toBe(false);
    const writer = Bun.spawn(["sh", "-c", "echo said"], { stdio: ["ignore", pipe.write, null] });
    while (!engine.awaits(pipe.read, 1000));
    expect(readSome(pipe.read, Buffer.alloc(16)).toString()).toBe("said\n");
    await writer.exited;
  } finally {
    closeAll([pipe.read, pipe.write]);
  }
  expect(engine.awaits(pipe.read, 1000)).toBe(false);
});

test("a program whose file system does not answer keeps none waiting that comes beside it, nor what runs", async () => {
  await using hanging = await mountHanging(20);
  if (hanging === undefined) return;
  const commands = await testCommands();
  // Not alone, or JavaScript's own thread would start it and wait.
  const beside = Array.from({ length: 4 }, () => run(commands, { argv: ["sleep", "0.2"] }));
  let waits = true;
  const hung = begin(commands, { argv: [hanging.stuck] })
    .ended.catch(() => {})
    .finally(() => {
      waits = false;
    });
  const ends = await Promise.all([...beside, run(commands, { argv: ["echo", "hi"] })]);
  expect(ends.map(({ outcome }) => outcome)).toEqual(ends.map(() => ({ type: "exited", code: 0 })));
  expect(ends.at(-1)?.text).toBe("hi\n");
  expect(waits).toBe(true);
  hanging.end();
  await hung;
}, 40_000);

test("two threads start commands that come together, and none of its own where a sandbox may have few processes", async () => {
  const fixture = join(import.meta.dir, "starters.fixture.ts");
  for (const [limit, threads] of [
    ["", "2"],
    ["ulimit -u 127;", "0"],
  ]) {
    const argv = ["bash", "-c", `${limit} exec "$@"`, "bash", process.execPath, fixture];
    const child = Bun.spawn(argv, { stdout: "pipe", stderr: "inherit" });
    expect(await new Response(child.stdout).text()).toBe(threads ?? "");
    expect(await child.exited).toBe(0);
  }
});
