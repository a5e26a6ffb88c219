// How commands end: time limits, cancels, background work, back-pressure.
import { beforeAll, describe, expect, test } from "bun:test";
import type { Commands } from "./exec.ts";
import { Processes } from "./processes.ts";
import { SIGINT } from "./signals.ts";
import { alive, begin, run, testCommands, until } from "./testing.ts";

let commands: Commands;
beforeAll(async () => {
  commands = await testCommands();
});

const pidsIn = (text: string): number[] => text.trim().split(/\s+/).map(Number);
const end = (pids: number[]): void => {
  for (const pid of pids) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // It is gone, as it should be.
    }
  }
};

describe("background work", () => {
  test("a child that holds stdout does not delay the reply, and is listed", async () => {
    const running = begin(commands, { shell: "sleep 61 & echo hi $!" });
    const ended = await running.ended;
    const child = Number(ended.text.split(" ")[1]);
    try {
      expect(ended.outcome).toEqual({ type: "exited", code: 0 });
      expect(ended.text).toStartWith("hi ");
      expect(ended.background).toBe(1);
      expect(await running.command.background()).toEqual([child]);
      expect(await alive(child)).toBe(true);
    } finally {
      end([child]);
    }
  });

  test.each([
    ["", "echo $!"],
    [", nor that of a talkative leader", "head -c 400000 /dev/zero"],
  ])("a child that writes after the reply does not die of SIGPIPE%s", async (_, leader) => {
    const line = `(read go < "$FIFO"; head -c 900000 /dev/zero; echo written > "$FIFO.done") & ${leader}`;
    const fifo = `/tmp/exec-test-fifo-${process.pid}`;
    await run(commands, { argv: ["mkfifo", fifo, `${fifo}.done`] });
    try {
      const ended = await run(commands, { shell: line, env: { FIFO: fifo } });
      expect(ended.background).toBe(1);
      const answer = run(commands, { argv: ["cat", `${fifo}.done`], timeout_ms: 10_000 });
      await run(commands, { shell: 'echo > "$FIFO"', env: { FIFO: fifo } });
      expect((await answer).text).toBe("written\n");
    } finally {
      await run(commands, { argv: ["rm", "-f", fifo, `${fifo}.done`] });
    }
  });

  test("what was written just before the leader's end is complete though a child holds the pipe", async () => {
    for (let i = 0; i < 20; i++) {
      const ended = await run(commands, { shell: "sleep 61 & p=$!; head -c 200000 /dev/zero; echo $p >&2" });
      end(pidsIn(ended.stderr.toString()));
      expect(ended.stdout.length).toBe(200_000);
    }
  });

  test("a child that reads what the leader wrote does not keep the reply waiting for it", async () => {
    // The leader goes on only when nobody else reads its pipe, so that all it writes is there for the child.
    const running = begin(commands, {
      shell:
        "kill -STOP $$; head -c 50000 /dev/zero; (exec cat /proc/self/fd/3 3>&1 >/dev/null) & echo $! >&2",
    });
    const pid = await running.started;
    await until("it has stopped", async () => / T /.test(await Bun.file(`/proc/${pid}/stat`).text()));
    running.command.pause(true);
    process.kill(pid, "SIGCONT");
    await until("the leader is gone", async () => !(await alive(pid)));
    let child = 0;
    await until("the child has read it and waits for more", async () => {
      child = (await running.command.background())[0] ?? 0;
      const stat = await Bun.file(`/proc/${child}/stat`)
        .text()
        .catch(() => "");
      return stat.includes("(cat) S ");
    });
    running.command.pause(false);
    try {
      expect((await running.ended).outcome).toEqual({ type: "exited", code: 0 });
    } finally {
      end([child]);
    }
  });

  test("wait: all waits for the background, also where it holds no pipe", async () => {
    const ended = await run(commands, {
      shell: "(sleep 0.2; echo late) & (exec >/dev/null 2>&1 sleep 0.4) & echo $! >&2",
      wait: "all",
    });
    expect(ended.text).toBe("late\n");
    expect(await alive(Number(ended.stderr.toString()))).toBe(false);
    expect(ended.background).toBeUndefined();
  });
});

describe("the whole tree ends", () => {
  // In the leader's group; in a session of its own; orphaned in a session of its own.
  const tree =
    "sleep 62 & echo $!; setsid sleep 62 & (setsid sh -c 'echo $$; sleep 62; true' &) ; echo $!; echo up; wait; sleep 62";

  test("at the time limit, grandchildren and those with a session of their own too; others' background lives", async () => {
    const other = await run(commands, { shell: "sleep 63 >/dev/null 2>&1 & echo $!" });
    const otherPid = Number(other.text);
    try {
      const running = begin(commands, { shell: tree, timeout_ms: 400, grace_ms: 3000 });
      await running.until("up");
      const members = await running.command.background();
      const ended = await running.ended;
      expect(members.length).toBeGreaterThanOrEqual(3);
      expect(ended.outcome).toMatchObject({ type: "timed_out", after_ms: 400 });
      if (ended.outcome.type === "timed_out") expect(ended.outcome.killed).toBeGreaterThanOrEqual(4);
      for (const pid of members) expect(await alive(pid)).toBe(false);
      expect(ended.text).toContain("up\n");
      expect(await alive(otherPid)).toBe(true);
    } finally {
      end([otherPid]);
    }
  });

  test("by SIGKILL after the grace, where SIGTERM is ignored", async () => {
    const running = begin(commands, {
      shell: "trap '' TERM; echo up; while :; do sleep 0.05; done",
      grace_ms: 150,
    });
    await running.until("up");
    running.command.cancel();
    const ended = await running.ended;
    expect(ended.outcome).toMatchObject({ type: "canceled", signal: "SIGKILL" });
    expect(await running.command.background()).toEqual([]);
  });

  test("with the reason the endpoint gives", async () => {
    const running = begin(commands, { shell: "yes" });
    await running.until("y\n");
    running.command.pause(true);
    running.command.cancel({ type: "output_limit", stream: "stdout", limit_bytes: 10 });
    expect((await running.ended).outcome).toEqual({
      type: "output_limit",
      stream: "stdout",
      limit_bytes: 10,
    });
  });

  test("also when a fork storm is under way", async () => {
    const running = begin(commands, {
      shell: "f() { while :; do (sleep 0.01 &) ; done; }; f & f & echo up; f",
      grace_ms: 0,
    });
    await running.until("up");
    running.command.cancel();
    expect((await running.ended).outcome).toMatchObject({ type: "canceled", signal: "SIGKILL" });
    await until("nothing of it is left", async () => (await running.command.background()).length === 0);
  });

  test("a command that ends on SIGTERM by itself is still canceled, with what it said last", async () => {
    const running = begin(commands, {
      shell: "trap 'echo bye; exit 3' TERM; sleep 64 & wait",
      grace_ms: 20_000,
    });
    // Not before: what is between fork and exec would take SIGTERM with the shell's trap, and lose it.
    await until("sleep runs", async () => {
      const [pid] = await running.command.background();
      const name = await Bun.file(`/proc/${pid}/comm`)
        .text()
        .catch(() => "");
      return name === "sleep\n";
    });
    running.command.cancel();
    const ended = await running.ended;
    expect(ended.outcome).toEqual({ type: "canceled", killed: 2, signal: "SIGTERM" });
    expect(ended.text).toBe("bye\n");
  }, 30_000);

  test("a cancel before the start is known still ends it", async () => {
    const running = begin(commands, { argv: ["sleep", "65"] });
    running.command.cancel();
    expect((await running.ended).outcome).toMatchObject({ type: "canceled" });
  });

  test("a foreign process of the same session number is no member where it descends from the daemon only", () => {
    const processes = [
      { pid: 10, parent: 1, session: 10 },
      { pid: 11, parent: 10, session: 20 },
      { pid: 12, parent: 1, session: 20, ids: ["mine"] },
      { pid: 13, parent: 12, session: 13 },
      { pid: 14, parent: 1, session: 14 },
      { pid: 15, parent: 14, session: 14 },
    ];
    const all = new Processes(processes.map((each) => ({ ids: [], ...each })));
    expect(all.tree("none", 10, 1)).toEqual([10, 11]);
    expect(all.tree("mine", 10, 1).sort()).toEqual([10, 11, 12, 13]);
    expect(all.tree("none", 20, 1).sort()).toEqual([11, 12, 13]);
  });

  test("the leader is asked to end first, then its children: a shell whose child ends before it goes on to its next command", () => {
    const all = new Processes(
      [
        { pid: 5, parent: 30, session: 30 }, // pids have begun anew
        { pid: 30, parent: 1, session: 30 },
        { pid: 31, parent: 30, session: 30 },
        { pid: 32, parent: 31, session: 32 },
      ].map((each) => ({ ...each, ids: ["mine"] })),
    );
    const tree = all.tree("mine", 30, 1);
    expect(tree[0]).toBe(30);
    expect(tree.indexOf(31)).toBeLessThan(tree.indexOf(32));
    expect(tree.toSorted()).toEqual([30, 31, 32, 5]);
  });
});

describe("signals from outside", () => {
  test("go to the group, and an end by them is `signaled`", async () => {
    const running = begin(commands, { shell: "sleep 66; echo not here" });
    await running.started;
    expect(running.command.signal(SIGINT)).toBe(true);
    expect((await running.ended).outcome).toMatchObject({ type: "signaled", signal: "SIGINT" });
    expect(running.command.signal(SIGINT)).toBe(false);
  });
});

describe("back-pressure", () => {
  test("a paused command waits, and the daemon's memory does not grow", async () => {
    const running = begin(commands, { argv: ["yes", "0123456789"] });
    let bytes = 0;
    let sink: (data: Uint8Array) => void = () => {};
    const first = new Promise<void>((resolve) => {
      sink = () => resolve();
    });
    running.onOutput((data) => {
      bytes += data.length;
      sink(data);
    });
    await first;
    running.command.pause(true);
    // What was read already may still come; then silence: the writer sleeps in its write.
    const pid = await running.started;
    await until("the writer waits for the pipe", async () => {
      const waits = await Bun.file(`/proc/${pid}/wchan`)
        .text()
        .catch(() => "pipe_write");
      const state = await Bun.file(`/proc/${pid}/stat`).text();
      return / S /.test(state) && (waits === "0" || waits.includes("pipe"));
    });
    const paused = bytes;
    expect(paused).toBeLessThan(4 * 1024 * 1024);
    let more = 0;
    running.onOutput((data) => (more += data.length));
    await run(commands, { shell: "sleep 0.1" });
    expect(more).toBeLessThanOrEqual(1024 * 1024);
    running.command.pause(false);
    await until("output flows again", () => more > 4 * 1024 * 1024);
    running.command.cancel();
    await running.ended;
  });

  test.each([
    [60_000, 50_000],
    [600_000, 400_000],
  ])(
    "output of a command that ends while paused comes after the pause, complete: %d and %d",
    async (first, last) => {
      const running = begin(commands, {
        shell: `head -c ${first} /dev/zero; kill -STOP $$; head -c ${last} /dev/zero`,
      });
      const pid = await running.started;
      await until("it has stopped", async () => / T /.test(await Bun.file(`/proc/${pid}/stat`).text()));
      // What is still to come fits into the pipe, beside nothing else.
      await until("the first bytes were read", () => running.stdout().length === first);
      running.command.pause(true);
      process.kill(pid, "SIGCONT");
      await until("the leader is gone", async () => !(await alive(pid)));
      running.command.pause(false);
      expect((await running.ended).stdout.length).toBe(first + last);
    },
  );
});
