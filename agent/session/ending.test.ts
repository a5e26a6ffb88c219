import { afterEach, expect, test } from "bun:test";
import { BusyError, InvalidRequestError, SessionClosedError } from "../../broker/contract/index.ts";
import { SIGINT, SIGTERM } from "../exec/signals.ts";
import { MAX_QUEUED } from "./session.ts";
import {
  begin,
  closeSessions,
  inEachShell,
  isAlive,
  run,
  SHELLS,
  testSessions,
  untilGone,
  untilIgnoresInterrupt,
} from "./testing.ts";

afterEach(closeSessions);

const NEVER = "echo NEVER";

inEachShell(
  "a time-out ends the command and all that follows in it; the session lives with its state",
  async (s) => {
    await run(s, "cd /usr; kept=yes; f() { sleep 60; echo NEVER; }");
    for (const stuck of [
      "sleep 60",
      "f",
      "for i in 1 2 3; do sleep 60; done",
      "x=$(sleep 60)",
      "sleep 60 | cat",
      "( sleep 60 )",
      "while :; do :; done",
      "sh -c 'sleep 60; :'",
    ]) {
      const ended = await run(s, `${stuck}; ${NEVER}`, { timeout_ms: 150 });
      // An interrupt is enough; on a busy machine the shell may not be back by the time that the harder signal comes.
      const signal = expect.stringMatching(/^SIG(INT|TERM)$/);
      expect(ended.outcome).toMatchObject({ type: "timed_out", after_ms: 150, signal });
      expect([stuck, ended.stdout]).toEqual([stuck, ""]);
      expect((await run(s, "pwd; echo $kept")).stdout).toBe("/usr\nyes\n");
    }
  },
);

inEachShell("the longest time limit does not end a command at once", async (s) => {
  const ended = await run(s, "sleep 0.1; echo end", { timeout_ms: 2_592_000_000 });
  expect([ended.what, ended.stdout]).toEqual(["exited 0", "end\n"]);
});

inEachShell("what ignores an interrupt is ended harder, and the session lives", async (s) => {
  const script = `trap "" INT TERM; echo ready; while :; do sleep 60; done`;
  const ended = await run(s, `sh -c '${script}'; sleep 60; ${NEVER}`, { timeout_ms: 200, grace_ms: 200 });
  expect(ended.outcome).toMatchObject({ type: "timed_out", signal: "SIGKILL" });
  expect(ended.stdout).toBe("ready\n");
  expect((await run(s, "echo alive")).stdout).toBe("alive\n");
});

inEachShell(
  "output before a time-out is kept, and its children and background jobs are gone, those of others not",
  async (s) => {
    const earlier = Number((await run(s, "sleep 60 & echo $!")).stdout);
    await untilIgnoresInterrupt(earlier);
    const running = begin(
      s,
      "echo so far; sleep 61 & echo $!; nohup sleep 62 >/dev/null 2>&1 & echo $!; echo x; sleep 63",
      { grace_ms: 500 },
    );
    await running.until("x\n");
    running.command.cancel();
    const ended = await running.ended;
    expect(ended.what).toBe("canceled");
    const [first, one, two] = ended.stdout.split("\n");
    expect(first).toBe("so far");
    await untilGone(Number(one));
    await untilGone(Number(two));
    expect(isAlive(earlier)).toBe(true);
    expect((await run(s, "echo alive")).stdout).toBe("alive\n");
  },
);

inEachShell(
  "a shell that cannot be brought back is ended, with all it started, and says so",
  async (s, shell) => {
    const ended = await run(s, "trap '' INT; while :; do sleep 0.01; done", {
      timeout_ms: 100,
      grace_ms: 50,
    });
    expect(ended.what).toBe("timed_out");
    const refused = (): unknown => begin(s, "echo");
    expect(refused).toThrow(SessionClosedError);
    expect(refused).toThrow("could not be brought back");
    await s.open({ session: "s", shell });
    expect((await run(s, "echo anew")).stdout).toBe("anew\n");
  },
);

inEachShell("an interrupt by signal is Ctrl-C: back to the prompt, trap and all", async (s) => {
  // From within, since an interrupt between a shell's fork and its wait is lost, as it is on a terminal.
  const program = "sh -c 'echo go; exec sleep 60'";
  const running = begin(s, `${program}; ${NEVER}`);
  await running.until("go\n");
  expect(running.command.signal(SIGINT)).toBe(true);
  expect([(await running.ended).what, (await running.ended).stdout]).toEqual(["exited 130", "go\n"]);
  expect(running.command.signal(SIGINT)).toBe(false);
  const other = begin(s, program);
  await other.until("go\n");
  expect(await other.command.signal(SIGTERM)).toBe(true);
  expect((await other.ended).what).toBe("exited 143");
  const alone = begin(s, "echo go; while :; do :; done");
  await alone.until("go\n");
  expect(await alone.command.signal(SIGTERM), "it runs, and has no process but the shell").toBe(true);
  expect(alone.command.signal(SIGINT)).toBe(true);
  expect((await alone.ended).what).not.toBe("exited 0");
  expect((await run(s, "echo alive")).stdout).toBe("alive\n");
});

inEachShell("a command of its own folder is ended like another", async (s) => {
  const ended = await run(s, `sleep 60; ${NEVER}`, { cwd: "/tmp", timeout_ms: 100, merge: true });
  expect([ended.what, ended.stdout.trim()]).toEqual(["timed_out", ""]);
  expect((await run(s, "echo alive")).stdout).toBe("alive\n");
});

test("commands run one at a time in their order; a waiting one can be canceled; the queue is bounded", async () => {
  const s = await testSessions();
  await s.open({ session: "s" });
  const fifo = `/tmp/sandmesh-queue-${process.pid}`;
  await run(s, `rm -f ${fifo}; mkfifo ${fifo}`);
  const first = begin(s, `cat ${fifo}; rm ${fifo}; n=1`);
  const waiting = Array.from({ length: MAX_QUEUED }, () => begin(s, "echo $n; n=$((n+1))"));
  expect(() => begin(s, "echo")).toThrow(BusyError);
  expect(s.list()).toMatchObject([{ session: "s", busy: true }]);
  for (const signal of [SIGINT, SIGTERM])
    expect(() => waiting[3]?.command.signal(signal), "it has no process yet").toThrow(InvalidRequestError);
  waiting[3]?.command.cancel();
  expect((await waiting[3]?.ended)?.outcome).toMatchObject({ type: "canceled", killed: 0 });
  expect(waiting[3]?.command.signal(SIGINT), "it is over").toBe(false);
  Bun.spawnSync(["sh", "-c", `echo go >${fifo}`]);
  expect((await first.ended).stdout).toBe("go\n");
  waiting.splice(3, 1);
  const outputs = await Promise.all(waiting.map(async ({ ended }) => (await ended).stdout));
  expect(outputs).toEqual(waiting.map((_, i) => `${i + 1}\n`));
});

inEachShell(
  "what waits behind a line that ends the shell is told that it did not start, and not that somebody canceled it",
  async (s) => {
    for (const end of ["exit 4", "kill -9 $$"]) {
      const first = begin(s, end);
      const behind = [begin(s, "echo after"), begin(s, "echo after")];
      expect((await first.ended).what).toBe(end === "exit 4" ? "exited 4" : "signaled");
      for (const { ended } of behind) {
        const error = await ended.catch((thrown: unknown) => thrown);
        expect(error).toBeInstanceOf(SessionClosedError);
        expect(error).toMatchObject({ started: "no", reason: "exited" });
      }
      await s.open({ session: "s" });
    }
  },
);

test("a line whose shell ends while its quotes are looked at did not start, and is not told the shell's end as its own", async () => {
  const s = await testSessions();
  const { pid } = await s.open({ session: "s" });
  // Long, so that the look at it takes longer than the shell's end.
  const { ended } = begin(s, `: ')' ${"x ".repeat(60_000)}`);
  process.kill(pid, "SIGKILL");
  const error = await ended.catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(SessionClosedError);
  expect(error).toMatchObject({ started: "no", reason: "exited" });
});

inEachShell(
  "closing ends the shell, its command and its background jobs, and answers all of them",
  async (s, shell) => {
    const background = Number((await run(s, "sleep 60 & echo $!")).stdout);
    const running = begin(s, "echo go; sleep 60");
    const queued = begin(s, "echo queued");
    await running.until("go\n");
    const pid = s.list()[0]?.pid ?? 0;
    expect(await s.close("s")).toBe(true);
    expect([(await running.ended).what, (await queued.ended).what]).toEqual(["canceled", "canceled"]);
    await untilGone(background);
    await untilGone(pid);
    expect(s.list()).toEqual([]);
    expect(await s.close("s")).toBe(false);
    expect(() => begin(s, "echo")).toThrow("it was closed");
    await s.open({ session: "s", shell });
    expect((await run(s, "echo anew")).stdout).toBe("anew\n");
  },
);

test("opening twice answers the open one, another setting is a conflict, what is missing is told", async () => {
  const s = await testSessions("/usr");
  const [one, two] = await Promise.all([s.open({ session: "s" }), s.open({ session: "s" })]);
  expect(one.pid).toBe(two.pid);
  expect((await run(s, "pwd")).stdout).toBe("/usr\n");
  expect(s.open({ session: "s", cwd: "/tmp" })).rejects.toMatchObject({ code: "conflict" });
  expect(s.open({ session: "a", shell: "no-such-shell" })).rejects.toMatchObject({
    code: "not_found",
    field: "shell",
  });
  expect(s.open({ session: "a", shell: "/bin/cat" })).rejects.toMatchObject({
    code: "invalid_request",
    field: "shell",
  });
  expect(s.open({ session: "a", cwd: "/no/where" })).rejects.toMatchObject({
    code: "not_found",
    field: "cwd",
  });
  await s.open({ session: "b", cwd: "lib", env: { GREETING: "hé", PATH: "/usr/bin:/bin" } });
  expect((await run(s, "pwd; echo $GREETING", { session: "b" })).stdout).toMatch(/^\/usr\/lib\nhé\n$/);
  expect(() => begin(s, "echo", { session: "never" })).toThrow("never opened");
});

test("what a session cannot do is refused by its field", async () => {
  const s = await testSessions();
  await s.open({ session: "s" });
  const wrong: Record<string, unknown>[] = [
    { user: "root" },
    { umask: 0 },
    { nice: 1 },
    { rlimits: { cpu: 1 } },
    { env_replace: true },
    { pty: { rows: 1, cols: 1 } },
    { wait: "all" },
    { env: { "not a name": "x" } },
  ];
  for (const more of wrong) {
    expect(() => begin(s, "echo", more)).toThrow(InvalidRequestError);
    expect(() => begin(s, "echo", more)).toThrow(Object.keys(more)[0] ?? "");
  }
  expect((await run(s, "echo alive")).stdout).toBe("alive\n");
});

test("many sessions work at the same time", async () => {
  const s = await testSessions();
  const names = Array.from({ length: 16 }, (_, i) => ({
    session: `s${i}`,
    shell: SHELLS.find((shell) => Bun.which(shell)) ?? "sh",
  }));
  await Promise.all(names.map((each) => s.open(each)));
  const results = await Promise.all(
    names.flatMap(({ session }) =>
      Array.from({ length: 20 }, (_, i) => run(s, `n=$((n+1)); echo ${session} $n ${i}`, { session })),
    ),
  );
  expect(results.map(({ stdout }) => stdout)).toEqual(
    names.flatMap(({ session }) => Array.from({ length: 20 }, (_, i) => `${session} ${i + 1} ${i}\n`)),
  );
});

inEachShell(
  "a time limit that passes as the command ends leaves the session in step",
  async (s) => {
    for (let i = 0; i < 25; i++) {
      const raced = await run(s, "sleep 0.03; echo end", { timeout_ms: 30 + (i % 5) });
      expect(["exited 0", "timed_out"]).toContain(raced.what);
      const next = await run(s, `echo ${i}`);
      expect(next.stdout.replace("end\n", "")).toBe(`${i}\n`);
    }
  },
  ["bash", "dash", "busybox"],
);

/** Each makes the shell unable to say that it is back, in a way of its own. */
const SILENCERS: Record<string, readonly string[]> = {
  bash: [
    "builtin() { :; }",
    "enable -n builtin",
    "enable -n printf",
    "__sandmesh_report() { :; }",
    "shopt -s extdebug; trap 'return 1' DEBUG",
  ],
  dash: ["command() { :; }", "unset -f __sandmesh_report"],
  busybox: ["command() { :; }", "unset -f __sandmesh_report"],
  zsh: ["builtin() { :; }", "disable printf"],
};

inEachShell(
  "what keeps the shell from saying that it is back ends the session, typed, and nobody waits for ever",
  async (s, shell) => {
    for (const line of SILENCERS[shell] ?? []) {
      for (const timeout of [{}, { timeout_ms: 100 }]) {
        const failed = await run(s, `echo out; ${line}`, timeout).catch((error: unknown) => error);
        expect([line, failed]).toEqual([line, expect.any(SessionClosedError)]);
        expect(failed).toMatchObject({ code: "session_closed", reason: "closed", started: "yes" });
        expect(() => begin(s, "echo")).toThrow("could not say so");
        await s.open({ session: "s", shell });
        expect((await run(s, "echo anew")).stdout).toBe("anew\n");
      }
    }
  },
);

inEachShell("a shell that only reads its input, or works for long, counts as busy", async (s) => {
  const reading = begin(s, "read -r line; echo got $line", { stdin_open: true });
  const busy = Bun.sleep(1_000);
  expect(await Promise.race([reading.ended, busy])).toBeUndefined();
  await reading.command.stdin(Buffer.from("it\n"));
  expect((await reading.ended).stdout).toBe("got it\n");
  expect((await run(s, "sleep 1; wait; x=$(sleep 0.5; echo sub); echo $x")).stdout).toBe("sub\n");
});
