// What a session's commands are told where the daemon has no descriptor left, or may not write a file that long.
import { afterEach, expect, test } from "bun:test";
import { closeSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BusyError } from "../../broker/contract/index.ts";
import { limited, openDescriptors, withFree } from "./limits.testing.ts";
import { begin, closeSessions, inEachShell, run, testSessions } from "./testing.ts";

afterEach(closeSessions);

const EACH = ["bash", "dash", "busybox", "zsh", "python3"] as const;
const copyInput = (shell: string): string =>
  shell === "python3" ? "import os, sys; _ = os.write(1, os.read(0, 100))" : "cat";

inEachShell(
  "a command whose stdin has no descriptor left is not started, and the session goes on",
  async (s, shell) => {
    const before = openDescriptors();
    for (const free of [0, 1]) {
      const [with_, beside] = await withFree(free, () =>
        Promise.all([
          run(s, copyInput(shell), { stdin: Buffer.from("lost") }),
          run(s, shell === "python3" ? "print('beside')" : "echo beside"),
        ]),
      );
      expect(with_.outcome).toMatchObject({ type: "not_started", reason: "out_of_files" });
      expect([beside.what, beside.stdout]).toEqual(["exited 0", "beside\n"]);
    }
    const after = await run(s, copyInput(shell), { stdin: Buffer.from("kept") });
    expect([after.what, after.stdout]).toEqual(["exited 0", "kept"]);
    expect(openDescriptors()).toBe(before);
  },
  EACH,
);

test("a command that had input is told to have ended where no descriptor is left by then, and its input is not the next one's", async () => {
  const folder = mkdtempSync(join(tmpdir(), "scarce-test-"));
  const fifo = join(folder, "go");
  expect(Bun.spawnSync(["mkfifo", fifo]).exitCode).toBe(0);
  const go = openSync(fifo, "r+");
  try {
    const s = await testSessions();
    await s.open({ session: "s", shell: "bash" });
    // By then the input's end is written, and with it went the writer; the second line is left in the pipe.
    const running = begin(s, `echo begun; read -r _ < ${fifo}; read -r line; echo $line`, {
      stdin: Buffer.from("one\ntwo\n"),
    });
    await running.until("begun");
    const ended = await withFree(0, () => {
      writeSync(go, "go\n");
      return running.ended;
    });
    expect([ended.what, ended.stdout]).toEqual(["exited 0", "begun\none\n"]);
    const next = await run(s, "cat", { stdin: Buffer.from("own") });
    expect([next.what, next.stdout]).toEqual(["exited 0", "own"]);
  } finally {
    closeSync(go);
    rmSync(folder, { recursive: true });
  }
});

test("a time limit ends a session's command where no descriptor is left, and so does a close", async () => {
  const s = await testSessions();
  await s.open({ session: "s", shell: "bash" });
  const line = "while :; do :; done";
  const timed = await withFree(0, () => run(s, line, { timeout_ms: 100, grace_ms: 100 }));
  expect(timed.what).toBe("timed_out");
  await s.open({ session: "t", shell: "bash" });
  const running = begin(s, "trap '' HUP INT TERM; echo begun; while :; do :; done", { session: "t" });
  await running.until("begun");
  await withFree(0, () => s.close("t"));
  expect((await running.ended).what).toBe("canceled");
}, 60_000);

test("with however few descriptors, a session is open and works, or it is told that there are none left", async () => {
  const s = await testSessions();
  const before = openDescriptors();
  let refused = 0;
  for (let free = 0; free < 64; free++) {
    const opened = await withFree(free, () =>
      s.open({ session: "s", shell: "bash" }).then(
        () => undefined,
        (thrown: unknown) => thrown,
      ),
    );
    if (opened === undefined) {
      expect((await run(s, "echo works")).stdout).toBe("works\n");
      expect(await s.close("s")).toBe(true);
      expect(openDescriptors()).toBe(before);
      if (free > refused + 3) break;
      continue;
    }
    refused = free;
    expect(opened).toBeInstanceOf(BusyError);
    expect(opened).toMatchObject({ reason: "out_of_files", started: "no" });
    expect(openDescriptors()).toBe(before);
  }
  expect(refused).toBeGreaterThan(10);
}, 60_000);

inEachShell(
  "of a line that is longer than the daemon's limit of file size nothing runs",
  async (s, shell) => {
    const [print, long] =
      shell === "python3" ? ["print('short')", "print('long') #"] : ["echo short", "echo long #"];
    expect((await run(s, print)).stdout).toBe("short\n");
    const limit = 4096;
    const whole = await limited("fsize", limit, () => run(s, `${long}${"x".repeat(limit)}`));
    expect(whole.outcome).toMatchObject({ type: "not_started", reason: "permission" });
    expect(whole.stdout).toBe("");
    expect((await run(s, print)).stdout).toBe("short\n");
  },
  EACH,
);
