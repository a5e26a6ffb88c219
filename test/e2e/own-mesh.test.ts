// The meshes of quickstart and of the benchmarks end with them, whatever ends these.
import { afterEach, beforeEach, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { constants, tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../../broker/server/testing.ts";
import { lines } from "../bench/lines.ts";
import { processes, processesOf } from "../processes.ts";
import { ROOT, run } from "./program.ts";

const NOTHING_LEFT = "left behind: 0 sandboxes, 0 processes, 0 mounts, 0 leases";
const QUICKSTART = { argv: ["bash", "deploy/quickstart", "2"], works: /^all ready after/ };
const BENCH = {
  argv: [process.execPath, "deploy/sandmesh.ts", "bench", "boot", "--n", "100000"],
  works: /^10\/100000$/,
};

const BURST = {
  argv: [
    process.execPath,
    "deploy/sandmesh.ts",
    "bench",
    "acquire",
    "--n",
    "4",
    "--clients",
    "2",
    "--rounds",
    "100000",
  ],
  works: /^4 usable after/,
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

/** The client processes of a benchmark know the mesh by their environment. */
const clientsOf = (home: string): number[] =>
  processes()
    .filter(({ argv }) => argv.some((arg) => arg.endsWith("/acquire-client.ts")))
    .map(({ pid }) => pid)
    .filter((pid) => environmentOf(pid).includes(home));

function environmentOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/environ`, "latin1");
  } catch {
    return ""; // ended while we looked
  }
}

const benchHomes = async (): Promise<string[]> =>
  (await readdir(folder)).filter((name) => name.startsWith("sandmesh-bench"));

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
    expect(await benchHomes()).toEqual([]);
  },
);

test("a signal that comes while a mesh is ended waits for its end", async () => {
  const program = `
    import { withMesh } from "./deploy/local/own.ts";
    import { describeLeft } from "./deploy/local/left.ts";
    const home = process.env.SANDMESH_HOME;
    await withMesh({ home, down: (left) => console.log(describeLeft(left)) }, async () => console.log("used"));`;
  const { child, said, heard } = await begin({ argv: [process.execPath, "-e", program], works: /^used$/ });
  while (child.exitCode === null && child.signalCode === null) {
    process.kill(-child.pid, "SIGINT");
    await Bun.sleep(10);
  }
  expect(await child.exited).toBe(128 + constants.signals.SIGINT);
  expect(processesOf(folder)).toEqual([]);
  await heard;
  expect(said).toContain(NOTHING_LEFT);
});

test.each([
  ["quickstart", QUICKSTART],
  ["a benchmark", BENCH],
] as const)("%s that is killed takes its mesh along", async (_, program) => {
  const { child } = await begin(program);
  process.kill(-child.pid, "SIGKILL");
  await until("the mesh has ended", () => processesOf(folder).length === 0, 60_000, 50);
  expect(await benchHomes()).toEqual([]);
});

test("a benchmark's client processes end with it, and do not go on asking a mesh that is gone", async () => {
  const { child } = await begin(BURST);
  expect(clientsOf(folder).length).toBe(2);
  // The command line alone: what it runs ends its mesh, too.
  process.kill(child.pid, "SIGKILL");
  await until("the mesh has ended", () => processesOf(folder).length === 0, 60_000, 50);
  await until("the clients have ended", () => clientsOf(folder).length === 0, 5_000, 50);
  await until("the benchmark has ended", async () => (await benchHomes()).length === 0, 5_000, 50);
});

test("a benchmark whose stdout takes nothing, or that has no room for its mesh, says so in a line", async () => {
  const bench = (env: Record<string, string>, shell: string) =>
    run(["bash", "-c", shell, "bash", process.execPath, "deploy/sandmesh.ts", "bench", "boot", "--n", "1"], {
      env: { TMPDIR: folder, ...env },
    });
  const unheard = await bench({}, '"$@" > /dev/full');
  expect(unheard.code).toBe(1);
  expect(unheard.stderr).toContain(NOTHING_LEFT);
  expect(unheard.stderr.trimEnd().split("\n").at(-1)).toMatch(/^sandmesh: file_error: stdout, .*ENOSPC/);
  const nowhere = await bench({ TMPDIR: join(folder, "none") }, '"$@" --json');
  expect(JSON.parse(nowhere.stdout)).toMatchObject({ error: { code: "file_error", reason: "ENOENT" } });
  expect([nowhere.code, nowhere.stderr.trimEnd().split("\n").length]).toEqual([1, 1]);
});
