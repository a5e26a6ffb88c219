// The meshes of quickstart and of the benchmarks end with them, whatever ends these.
import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../../broker/server/testing.ts";
import { lines } from "../bench/lines.ts";
import { processesOf } from "../processes.ts";
import { ROOT } from "./program.ts";

const NOTHING_LEFT = "left behind: 0 sandboxes, 0 processes, 0 mounts, 0 leases";
const QUICKSTART = { argv: ["bash", "deploy/quickstart", "2"], works: /^all ready after/ };
const BENCH = {
  argv: [process.execPath, "deploy/sandmesh.ts", "bench", "boot", "--n", "100000"],
  works: /^10\/100000$/,
};

let folder: string;
let begun: Bun.Subprocess | undefined;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "sandmesh-own-"));
  begun = undefined;
});
afterEach(async () => {
  if (begun?.exitCode === null && begun.signalCode === null) process.kill(-begun.pid, "SIGKILL");
  await rm(folder, { recursive: true, force: true });
});

/** Starts it in a group of its own, and waits until its sandboxes are at work. */
async function begin({ argv, works }: { argv: string[]; works: RegExp }) {
  const child = Bun.spawn(argv, {
    cwd: ROOT,
    env: { ...process.env, SANDMESH_HOME: folder, TMPDIR: folder },
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  begun = child;
  const said: string[] = [];
  const hear = async (stream: ReadableStream<Uint8Array>): Promise<void> => {
    for await (const line of lines(stream)) said.push(line);
  };
  const heard = Promise.all([hear(child.stdout), hear(child.stderr)]);
  await until("it works", () => said.some((line) => works.test(line)), 60_000, 10);
  expect(processesOf(folder).length).toBeGreaterThan(3);
  return { child, said, heard };
}

test.each([
  ["quickstart", "by Ctrl-C", QUICKSTART, "SIGINT", true],
  ["quickstart", "when its terminal closes", QUICKSTART, "SIGHUP", true],
  ["a benchmark", "by Ctrl-C", BENCH, "SIGINT", true],
  ["a benchmark", "by a signal to the command line alone", BENCH, "SIGTERM", false],
] as const)(
  "%s that is ended %s ends its mesh first, and says so",
  async (_, _how, program, signal, toGroup) => {
    const { child, said, heard } = await begin(program);
    process.kill(toGroup ? -child.pid : child.pid, signal);
    expect(await child.exited).toBe(128 + constants.signals[signal]);
    expect(processesOf(folder)).toEqual([]);
    await heard;
    expect(said).toContain(`${signal}: ending the mesh`);
    expect(said).toContain(NOTHING_LEFT);
    // The benchmarks' homes are for them alone.
    expect((await readdir(folder)).filter((name) => name.startsWith("sandmesh-bench"))).toEqual([]);
  },
);

test.each([
  ["quickstart", QUICKSTART],
  ["a benchmark", BENCH],
] as const)("%s that is killed takes its mesh along", async (_, program) => {
  const { child } = await begin(program);
  process.kill(-child.pid, "SIGKILL");
  await until("the mesh has ended", () => processesOf(folder).length === 0, 60_000, 50);
});
