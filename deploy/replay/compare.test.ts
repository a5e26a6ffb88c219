import { describe, expect, test } from "bun:test";
import { compare, type Replayed } from "./compare.ts";
import { loadFixture, loadTrajectories, parseTrajectory, type Step } from "./trajectory.ts";

const replayed = (code: number, stdout = "", stderr = ""): Replayed => ({
  outcome: { type: "exited", code },
  stdout: Buffer.from(stdout),
  stderr: Buffer.from(stderr),
});
const step = (fields: Partial<Step>): Step => ({ command: "true", ...fields });

describe("compare", () => {
  test("a success recorded as a failure differs", () => {
    expect(compare(step({ observed_ok: false }), replayed(0)).exit).toBe("differs");
    expect(compare(step({ observed_exit: 1 }), replayed(0)).exit).toBe("differs");
    expect(compare(step({ observed_exit: 0 }), replayed(1)).exit).toBe("differs");
  });

  test("a failure with another status is another result, unless no number was recorded", () => {
    expect(compare(step({ observed_exit: 1 }), replayed(2)).exit).toBe("differs");
    expect(compare(step({ observed_exit: 1 }), replayed(1)).exit).toBe("agrees");
    expect(compare(step({ observed_ok: false }), replayed(127)).exit).toBe("agrees");
  });

  test("a failure of the recording harness is none of the command", () => {
    for (const note of ["it was never executed there", "output could not be decoded as UTF-8"])
      expect(compare(step({ observed_ok: false, observed_note: note }), replayed(0)).exit).toBe("unknown");
  });

  test("a command ended by sandmesh never agrees with a recorded status", () => {
    const timedOut: Replayed = {
      ...replayed(0),
      outcome: { type: "timed_out", after_ms: 1, killed: 1, signal: "SIGTERM" },
    };
    expect(compare(step({ observed_exit: 0 }), timedOut).exit).toBe("differs");
    expect(compare(step({ observed_exit: 1 }), timedOut).exit).toBe("differs");
    expect(compare(step({ observed_ok: false }), timedOut).exit).toBe("differs");
  });

  test("output on either stream agrees, other output does not", () => {
    const recorded = step({ observed_output: "a\nb\n" });
    expect(compare(recorded, replayed(0, "a\nb\n")).output).toBe("agrees");
    expect(compare(recorded, replayed(1, "", "a\nb")).output).toBe("agrees");
    expect(compare(recorded, replayed(0, "a\n", "b\n")).output).toBe("agrees");
    expect(compare(recorded, replayed(0, "a\n")).output).toBe("differs");
  });

  test("what the recording left out is unknown, not agreed", () => {
    expect(compare(step({}), replayed(0, "x"))).toEqual({
      promised: false,
      exit: "unknown",
      output: "unknown",
    });
    expect(compare(step({ observed_output: "x", observed_output_cut: true }), replayed(0, "y")).output).toBe(
      "unknown",
    );
  });

  test("only what came out the same again elsewhere is promised", () => {
    expect(compare(step({ observed_same: true }), replayed(0)).promised).toBe(true);
    expect(compare(step({}), replayed(0)).promised).toBe(false);
  });

  test("why an output differs is told from the outputs, whatever the command", () => {
    const why = (recorded: string, stdout: string, stderr = "") =>
      compare(
        step({ command: "date; ls -l; hostname", observed_output: recorded }),
        replayed(0, stdout, stderr),
      ).why;
    const listed = (time: string, name: string) => `-rw-r--r-- 1 root root 44 ${time} ${name}\n`;
    expect(why("a\n", "a\n")).toBeUndefined();
    expect(why(listed("Jun  4 14:02", "f"), listed("Nov 30 2026", "f"))).toStartWith("time stamps");
    expect(why("at 2023-06-06 14:00:01\n", "at 2026-11-30 04:23:59\n")).toStartWith("time stamps");
    expect(why("a\nb\n", "b\na\n")).toStartWith("order");
    expect(why("12K\t/a\n", "8K\t/a\n")).toStartWith("numbers");
    expect(why("find: '/x': No such file\n", "", "find: ‘/x’: No such file\n")).toStartWith("messages");
    expect(why("a\nb\n", "a\nb\nc\n")).toStartWith("lines that only one of them has");
    expect(why("lost\n", "")).toBe("other lines altogether");
    expect(compare(step({ observed_exit: 0 }), replayed(1)).why).toBe("the exit code alone");
  });
});

describe("workloads", () => {
  test("every recorded trajectory and each fixture that it names can be read", async () => {
    const all = await loadTrajectories();
    expect(all.length).toBe(130);
    for (const name of new Set(all.map((t) => t.fixture).filter((f) => f !== undefined))) {
      expect((await loadFixture(name)).entries.length).toBeGreaterThan(0);
    }
  });

  test("a file without its header line is refused", () => {
    expect(() => parseTrajectory('{"i": 0, "command": "true"}')).toThrow();
  });
});
