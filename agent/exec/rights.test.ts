// What a command is given of limits, and what a daemon that is not root may not give it.
import { beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Commands } from "./exec.ts";
import { type Ran, run, testCommands } from "./testing.ts";

let commands: Commands;
beforeAll(async () => {
  commands = await testCommands();
});

describe("each limit", () => {
  const GIB = 1024 ** 3;
  /** How /proc/PID/limits calls it, and what is asked for. */
  const LIMITS = {
    as: ["Max address space", 6 * GIB],
    core: ["Max core file size", 4096],
    cpu: ["Max cpu time", 100],
    data: ["Max data size", 5 * GIB],
    fsize: ["Max file size", 7 * GIB],
    memlock: ["Max locked memory", 8192],
    nofile: ["Max open files", 77],
    nproc: ["Max processes", 99],
    stack: ["Max stack size", 1_048_576],
  } as const;

  test("is the one of its name, soft and hard, also beyond 4 GiB", async () => {
    const rlimits = Object.fromEntries(Object.entries(LIMITS).map(([name, [, limit]]) => [name, limit]));
    const { text } = await run(commands, { argv: ["cat", "/proc/self/limits"], rlimits });
    for (const [told, limit] of Object.values(LIMITS))
      expect(text).toMatch(new RegExp(`^${told} +${limit} +${limit} `, "m"));
  });
});

test("whether a core was written is told as the kernel tells it", async () => {
  const line = "ulimit -c unlimited; kill -SEGV $$";
  // Whether there is one is a matter of the machine: of core_pattern, of the hard limit.
  const asked = `import os, sys
pid = os.fork()
if pid == 0: os.execvp("sh", ["sh", "-c", sys.argv[1]])
print(os.WCOREDUMP(os.waitpid(pid, 0)[1]))`;
  const cwd = mkdtempSync(join(tmpdir(), "sandmesh-core-"));
  const floor = Bun.spawnSync(["python3", "-c", asked, line], { cwd }).stdout.toString();
  const { outcome } = await run(commands, { argv: ["sh", "-c", line], cwd });
  rmSync(cwd, { recursive: true });
  expect(outcome).toEqual({ type: "signaled", signal: "SIGSEGV", core_dumped: floor === "True\n" });
});

// Who is not root needs nobody to become it.
const AS_NOBODY = "process.setgroups([]); process.setgid(65534); process.setuid(65534);";

describe("a daemon that is not root", () => {
  /** How commands end there. */
  function ends(requests: object[]): Ran["outcome"][] {
    const script = `
      const { run, testCommands } = await import(${JSON.stringify(join(import.meta.dir, "testing.ts"))});
      const commands = await testCommands();
      ${process.getuid?.() === 0 ? AS_NOBODY : ""}
      const ends = [];
      for (const request of ${JSON.stringify(requests)}) ends.push((await run(commands, request)).outcome);
      console.log(JSON.stringify(ends));
      process.exit(0);`;
    const child = Bun.spawnSync([process.execPath, "-e", script]);
    expect(child.stderr.toString()).toBe("");
    return JSON.parse(child.stdout.toString());
  }

  test("says of another user, a higher priority and a higher limit that it has no right to them", () => {
    const argv = ["true"];
    const refused = [
      { argv, user: "root" },
      { argv, user: "1:1" },
      { argv, nice: -5 },
      { argv, rlimits: { nofile: 1_000_000_000 } },
    ];
    expect(ends(refused)).toEqual(
      refused.map(() => ({ type: "not_started", reason: "permission", message: expect.any(String) })),
    );
  });

  test("runs commands as the user that it is, who is asked for by number or name, and not with groups that it lacks", () => {
    const [uid, gid] = process.getuid?.() === 0 ? [65534, 65534] : [process.getuid?.(), process.getgid?.()];
    const argv = ["true"];
    const own = [{ user: `${uid}:${gid}` }, { user: "nobody" }, { user: "nobody:1" }];
    expect(ends(own.map((each) => ({ argv, ...each })))).toMatchObject([
      { type: "exited", code: 0 },
      uid === 65534 ? { type: "exited", code: 0 } : { reason: "permission" },
      { type: "not_started", reason: "permission" },
    ]);
  });
});
