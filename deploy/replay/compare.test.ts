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

  test("a failure with another nonzero status is the same failure", () => {
    expect(compare(step({ observed_exit: 1 }), replayed(2)).exit).toBe("agrees");
    expect(compare(step({ observed_ok: false }), replayed(127)).exit).toBe("agrees");
  });

  test("a command ended by sandmesh never agrees with a recorded status", () => {
    const timedOut: Replayed = {
      ...replayed(0),
      outcome: { type: "timed_out", after_ms: 1, killed: 1, signal: "SIGTERM" },
    };
    expect(compare(step({ observed_exit: 0 }), timedOut).exit).toBe("differs");
    expect(compare(step({ observed_exit: 1 }), timedOut).exit).toBe("differs");
  });

  test("output on either stream agrees, other output does not", () => {
    const recorded = step({ observed_output: "a\nb\n" });
    expect(compare(recorded, replayed(0, "a\nb\n")).output).toBe("agrees");
    expect(compare(recorded, replayed(1, "", "a\nb")).output).toBe("agrees");
    expect(compare(recorded, replayed(0, "a\n", "b\n")).output).toBe("agrees");
    expect(compare(recorded, replayed(0, "a\n")).output).toBe("differs");
  });

  test("what the recording left out is unknown, not agreed", () => {
    expect(compare(step({}), replayed(0, "x"))).toEqual({ exit: "unknown", output: "unknown" });
    expect(compare(step({ observed_output: "x", observed_output_cut: true }), replayed(0, "y")).output).toBe(
      "unknown",
    );
  });

  test("a difference by time stamps is explained, an unexplained one is not", () => {
    expect(compare(step({ command: "ls -la /", observed_output: "x" }), replayed(0, "y")).why).toStartWith(
      "time stamps: ",
    );
    expect(compare(step({ command: "wc -l", observed_output: "x" }), replayed(0, "y")).why).toBeUndefined();
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
