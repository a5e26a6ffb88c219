import { afterEach, expect } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { IncompleteCommandError } from "../../broker/contract/index.ts";
import { closeSessions, inEachShell, run } from "./testing.ts";

afterEach(closeSessions);

// zsh reads some of it otherwise, with `zsh -c` too. Recorded by agents in one shell for the whole episode (deploy/workloads/README.md has sources and licences).
const EPISODES = ["gym-claude-math-3", "gym-claude-math-4"];
const FOLDER = join(import.meta.dir, "../../deploy/workloads/trajectories");
const Step = v.object({
  command: v.string(),
  expect: v.object({ exit: v.number(), stdout_bytes: v.number(), stdout_sha256: v.optional(v.string()) }),
});

inEachShell(
  "recorded episodes of several kilobytes a command come out as they did",
  async (s) => {
    let unfinished = 0;
    for (const episode of EPISODES) {
      const [, ...steps] = readFileSync(join(FOLDER, `${episode}.jsonl`), "utf8")
        .trim()
        .split("\n");
      expect(steps.length).toBeGreaterThan(0);
      for (const line of steps) {
        const step = v.parse(Step, JSON.parse(line));
        const ran = await run(s, step.command).catch((error: unknown) => {
          if (error instanceof IncompleteCommandError) return undefined;
          throw error;
        });
        // One of them has an open quote at its end, of which its shell had only an error to say.
        if (ran === undefined) {
          expect([step.expect.exit, step.expect.stdout_bytes]).toEqual([2, 0]);
          unfinished++;
          continue;
        }
        expect(ran.what).toBe(`exited ${step.expect.exit}`);
        expect(ran.bytes.length).toBe(step.expect.stdout_bytes);
        if (step.expect.stdout_sha256 !== undefined)
          expect(new Bun.CryptoHasher("sha256").update(ran.bytes).digest("hex")).toBe(
            step.expect.stdout_sha256,
          );
      }
    }
    expect(unfinished).toBe(1);
  },
  ["bash", "dash", "busybox"],
);
