// What a cgroup holds of a command, and what escapes without one. Where this user may make no cgroups only the second.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readdirSync, readFileSync, rmdirSync } from "node:fs";
import { basename } from "node:path";
import {
  begin as beginInSession,
  closeSessions,
  run as runInSession,
  testSessions,
} from "../session/testing.ts";
import type { Commands } from "./exec.ts";
import { alive, begin, type Running, run, testCommands, testEngine, testGroups, until } from "./testing.ts";
import { findTree } from "./tree.ts";

/** Says its pid when it has left session, parents and environment behind. */
const ESCAPE = `(setsid env -i /bin/sh -c 'echo $$; exec sleep 71' &)`;
/** The same, for where its output may come late: the pid is said before this ends. */
const ESCAPE_TOLD = `${ESCAPE} | { read pid; echo "$pid"; }`;
const made = await testGroups();

const parentOf = (pid: number): number => {
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
};
const pidIn = (text: string): number => Number(/^(\d+)$/m.exec(text)?.[1]);
function end(...pids: number[]): void {
  for (const pid of pids) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // It is gone, as it should be.
    }
  }
}
/** The pid of the process that has escaped, when nobody of the command is its parent any more. */
async function escaped(running: Running): Promise<number> {
  await running.until("\n");
  const pid = pidIn(running.stdout().toString());
  const leader = await running.started;
  await until("it is an orphan", () => {
    const parent = parentOf(pid);
    return parent !== leader && !readFileSync(`/proc/${parent}/cmdline`, "latin1").includes("setsid");
  });
  return pid;
}

test("who has a group is not looked for elsewhere, which would read all of /proc for each of hundreds that end at once", async () => {
  const { ppid } = process;
  expect(await findTree("none", ppid)).toContain(ppid);
  expect(await findTree("none", ppid, { members: () => undefined })).toContain(ppid);
  expect(await findTree("none", ppid, { members: () => [] })).toEqual([]);
});

test("without a group who leaves session, parents and environment behind escapes the time limit, as it is documented", async () => {
  const running = begin(await testCommands(), {
    shell: `${ESCAPE}; sleep 72`,
    timeout_ms: 60_000,
    grace_ms: 0,
  });
  const pid = await escaped(running);
  try {
    running.command.cancel();
    expect((await running.ended).outcome).toMatchObject({ type: "canceled" });
    expect(await alive(pid)).toBe(true);
  } finally {
    end(pid);
  }
});

describe.if(made !== undefined)("in a group", () => {
  let commands: Commands;
  const folder = made?.folder ?? "";
  const groups = () => readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isDirectory());
  const procs = () => groups().map(({ name }) => readFileSync(`${folder}/${name}/cgroup.procs`, "latin1"));
  const leftOver = () =>
    procs()
      .flatMap((text) => text.trimEnd().split("\n"))
      .filter((pid) => pid !== "" && pid !== String(spare()));
  /** What stands ready, by its name. */
  const spare = () =>
    Number(Bun.spawnSync(["pgrep", "-x", "sandmesh-spare", "-P", String(process.pid)]).stdout.toString());
  async function ready(request: object): Promise<number> {
    for (let i = 0; i < 2; i++) await run(commands, { shell: ":", ...request });
    const engine = await testEngine();
    await until("a spare shell", () => engine.hasSpare() === true);
    return spare();
  }
  /** The group of the line `cat /proc/self/cgroup`. */
  const groupIn = (text: string) => new RegExp(`^0::.*${basename(folder)}/(\\d+)$`, "m").exec(text)?.[1];
  beforeAll(async () => {
    commands = await testCommands("/", made?.groups);
  });
  afterAll(async () => {
    await closeSessions();
    for (const pid of procs().join("").split("\n")) if (pid !== "") end(Number(pid));
    await until("all have gone", () => procs().join("") === "");
    made?.groups.close();
    for (const { name } of groups()) rmdirSync(`${folder}/${name}`);
    rmdirSync(folder);
  });

  test.each([
    { by: "at the time limit", request: { timeout_ms: 1500, grace_ms: 300 }, type: "timed_out" },
    { by: "when it is canceled", request: { stdin_open: true, grace_ms: 0 }, type: "canceled" },
  ])("who leaves session, parents and environment behind ends $by, too", async ({ request, type }) => {
    const running = begin(commands, { shell: `trap '' TERM; ${ESCAPE}; sleep 72; sleep 73`, ...request });
    const pid = await escaped(running);
    expect(await running.command.background()).toContain(pid);
    if (type === "canceled") running.command.cancel();
    const { outcome } = await running.ended;
    expect(outcome).toMatchObject({ type, signal: "SIGKILL" });
    expect(await alive(pid)).toBe(false);
  });

  test("a storm of such processes ends whole", async () => {
    const storm = "f() { while :; do (setsid env -i sleep 5 &) ; done; }; f & f & echo up; f";
    const running = begin(commands, { shell: storm, timeout_ms: 60_000, grace_ms: 0 });
    await running.until("up");
    running.command.cancel();
    expect((await running.ended).outcome).toMatchObject({ type: "canceled", signal: "SIGKILL" });
    await until("nothing is left", () => leftOver().length === 0);
  });

  test("background work of a command that ended lives on, is told, and the next command's end is not its own", async () => {
    const first = begin(commands, { shell: `${ESCAPE}; sleep 0.2`, timeout_ms: 60_000 });
    const pid = await escaped(first);
    try {
      const ended = await first.ended;
      expect(ended.outcome).toEqual({ type: "exited", code: 0 });
      expect(ended.background).toBe(1);
      const next = begin(commands, { shell: "echo up; sleep 72", timeout_ms: 60_000, grace_ms: 0 });
      await next.until("up");
      next.command.cancel();
      await next.ended;
      expect(await alive(pid)).toBe(true);
      expect(await first.command.background()).toEqual([pid]);
    } finally {
      end(pid);
    }
    await until("it has ended", async () => (await first.command.background()).length === 0);
  });

  test("groups are used again, also after a command that could not be started", async () => {
    await run(commands, { argv: ["true"], timeout_ms: 60_000 });
    const before = groups().length;
    for (let i = 0; i < 20; i++) {
      await run(commands, { argv: ["true"], timeout_ms: 60_000 });
      const failed = await run(commands, { argv: ["/no/such/program"], timeout_ms: 60_000 });
      expect(failed.outcome).toMatchObject({ type: "not_started", reason: "no_such_program" });
    }
    expect(groups().length).toBe(before);
  });

  test("wait: all waits also for who has left session, parents and environment behind", async () => {
    const shell = "(setsid env -i /bin/sh -c 'echo $$; exec >/dev/null 2>&1; sleep 0.4' &)";
    const ended = await run(commands, { shell, wait: "all" });
    expect(await alive(pidIn(ended.text))).toBe(false);
  });

  test("a program without a time limit has none, so that it costs nothing; a shell line has one, and any with a limit", async () => {
    const argv = ["cat", "/proc/self/cgroup"];
    expect(groupIn((await run(commands, { argv })).text)).toBeUndefined();
    expect(groupIn((await run(commands, { argv, timeout_ms: 60_000 })).text)).toBeDefined();
    expect(groupIn((await run(commands, { shell: argv.join(" ") })).text)).toBeDefined();
  });

  test.each([{}, { timeout_ms: 60_000 }])(
    "all of a line that a spare shell takes ends with its group: %j",
    async (request) => {
      const stood = await ready(request);
      const running = begin(commands, { shell: `${ESCAPE}; sleep 72`, grace_ms: 0, ...request });
      const pid = await escaped(running);
      expect(await running.started).toBe(stood);
      running.command.cancel();
      expect((await running.ended).outcome).toMatchObject({ type: "canceled", signal: "SIGKILL" });
      expect(await alive(pid)).toBe(false);
    },
  );

  test("no two lines are in the same group at once, whichever of them a spare shell takes", async () => {
    const left: number[] = [];
    const seen = new Set<string | undefined>();
    let taken = 0;
    try {
      for (let i = 0; i < 12; i++) {
        const stood = i % 3 === 0 ? 0 : await ready({});
        const shell = "sleep 73 >/dev/null 2>&1 & echo $!; cat /proc/self/cgroup";
        const { text, pid } = await run(commands, { shell, ...(i % 2 === 0 && { timeout_ms: 60_000 }) });
        if (pid === stood) taken++;
        left.push(pidIn(text));
        seen.add(groupIn(text));
      }
      expect(taken).toBeGreaterThan(4);
      expect(seen.size).toBe(12);
      expect(seen).not.toContain(undefined);
      expect(await Promise.all(left.map(alive))).toEqual(left.map(() => true));
    } finally {
      end(...left);
    }
  });

  test("a session's command takes its own along at its time limit, and not those of before; closing the session takes all", async () => {
    const sessions = await testSessions("/", made?.groups);
    await sessions.open({ session: "s" });
    const earlier = pidIn((await runInSession(sessions, ESCAPE_TOLD)).stdout);
    const running = beginInSession(sessions, `${ESCAPE_TOLD}; sleep 72`, { timeout_ms: 1500, grace_ms: 300 });
    const ended = await running.ended;
    expect(ended.what).toBe("timed_out");
    expect(await alive(pidIn(ended.stdout))).toBe(false);
    expect(await alive(earlier)).toBe(true);
    await sessions.close("s");
    await until("all of it has gone", async () => !(await alive(earlier)));
  });
});
