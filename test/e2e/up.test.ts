// `sandmesh up` and `down` where several are at it, or one was killed.
import { afterEach, beforeEach, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../../broker/server/testing.ts";
import { homePaths, runningSupervisor } from "../../deploy/local/home.ts";
import { down } from "../../deploy/local/up.ts";
import { detect } from "../../pool/provider/local/cgroups.ts";
import { Layout } from "../../pool/provider/local/layout.ts";
import { findMarked, killAll, startOf } from "../../pool/provider/local/processes.ts";
import { relayPid } from "../../pool/provider/local/testing.ts";
import { processesOf } from "../processes.ts";
import { PROGRAM, type Ran, ROOT, run } from "./program.ts";

let home: string;
beforeEach(async () => {
  home = await mkdtemp(join(tmpdir(), "sandmesh-up-"));
});
afterEach(async () => {
  await down(home).catch(() => undefined);
  await rm(home, { recursive: true, force: true });
});

/** The mesh's cgroups. */
const groupsOf = (of: string): string[] =>
  detect()
    .map(({ base }) => join(base, new Layout(homePaths(of).local).mark))
    .filter((folder) => existsSync(folder));

const sandmeshIn = (folder: string, ...args: string[]): Promise<Ran> =>
  run([...PROGRAM, ...args], { env: { SANDMESH_HOME: folder } });
const sandmesh = (...args: string[]): Promise<Ran> => sandmeshIn(home, ...args);

test("of several ups at once one starts the mesh, all tell where it is, and it works", async () => {
  const all = await Promise.all([1, 2, 3, 4].map(() => sandmesh("--json", "up")));
  expect(all.map(({ code, stderr }) => ({ code, stderr }))).toEqual(all.map(() => ({ code: 0, stderr: "" })));
  const answers = all.map(({ stdout }) => JSON.parse(stdout));
  expect(new Set(answers.map(({ url }) => url)).size).toBe(1);
  expect(answers.filter(({ already }) => !already).length).toBe(1);
  expect((await sandmesh("run", "host", "--", "echo", "works")).stdout).toBe("works\n");
  expect((await sandmesh("down")).stdout).toBe("left behind: 0 sandboxes, 0 processes, 0 mounts, 0 leases\n");
});

test("after a killed supervisor the next up clears what is left and works", async () => {
  expect((await sandmesh("up")).code).toBe(0);
  const kept = (await sandmesh("acquire", "host")).stdout.trim();
  process.kill(JSON.parse(await readFile(join(home, "supervisor.json"), "utf8")).pid, "SIGKILL");
  const again = await sandmesh("--json", "up");
  expect(JSON.parse(again.stdout)).toMatchObject({ already: false });
  expect((await sandmesh("ps", "--ids")).stdout).not.toContain(kept);
  expect((await sandmesh("run", "host", "--", "echo", "works")).stdout).toBe("works\n");
  expect((await sandmesh("down")).code).toBe(0);
});

test("a machine starts as many sandboxes at once as it has processors for, or as it is told; of a burst the rest waits", async () => {
  const settings = async () => JSON.parse(await readFile(homePaths(home).poolConfig, "utf8"));
  expect((await sandmesh("up")).code).toBe(0);
  expect(await settings()).toMatchObject({ maxBooting: 8 * availableParallelism() });
  const { code, stdout } = await sandmesh("acquire", "-n", String(12 * availableParallelism()), "host");
  expect([code, stdout.trim().split("\n").length]).toEqual([0, 12 * availableParallelism()]);
  expect((await sandmesh("down")).code).toBe(0);
  expect((await sandmesh("up", "--set", "maxBooting=3")).code).toBe(0);
  expect(await settings()).toMatchObject({ maxBooting: 3 });
});

test("a setting that is none, or cannot be, is refused at once, by its name, and nothing is started", async () => {
  for (const [given, field] of [
    ["maxLifeMs=-5", "maxLifeMs"],
    ["maxBooting=many", "maxBooting"],
    ["maxQueued=[1", "maxQueued"],
    ["unknown=1", "unknown"],
  ] as const) {
    const ran = await sandmesh("--json", "up", "--set", given);
    expect(ran.code).toBe(2);
    const { error } = JSON.parse(ran.stdout);
    expect(error).toMatchObject({ code: "invalid_request", field });
    expect(error.message).not.toMatch(/Invalid|Expected/);
  }
  expect((await sandmesh("up", "--port", "70000")).code).toBe(2);
  expect(await readdir(home)).toEqual([]);
});

test("a home that cannot be made is a typed error that says which variable names it; a relative one works", async () => {
  const file = join(home, "file");
  await writeFile(file, "");
  const nowhere = await run([...PROGRAM, "--json", "up"], {
    env: { SANDMESH_HOME: join(file, "mesh") },
  });
  expect(JSON.parse(nowhere.stdout)).toMatchObject({ error: { code: "file_error", reason: "ENOTDIR" } });
  expect(nowhere.stderr).toContain("SANDMESH_HOME");
  const relative = { cwd: home, env: { SANDMESH_HOME: "." } };
  const up = await run([...PROGRAM, "--json", "up"], relative);
  expect(JSON.parse(up.stdout).credentials).toBe(join(home, "credentials.creds"));
  expect((await run([...PROGRAM, "down"], relative)).code).toBe(0);
});

test("after a killed supervisor, down leaves no credential behind, and a second down says that nothing is up", async () => {
  expect((await sandmesh("up")).code).toBe(0);
  process.kill(JSON.parse(await readFile(join(home, "supervisor.json"), "utf8")).pid, "SIGKILL");
  expect((await sandmesh("down")).stdout).toBe("left behind: 0 sandboxes, 0 processes, 0 mounts, 0 leases\n");
  expect((await readdir(home)).filter((name) => /creds|json/.test(name))).toEqual([]);
  const again = await sandmesh("down");
  expect([again.code, again.stderr]).toEqual([3, expect.stringContaining("no mesh is up")]);
});

test("an up that is interrupted while the mesh starts leaves no mesh, no address of one and no credential", async () => {
  const child = Bun.spawn([...PROGRAM, "up"], {
    env: { ...process.env, SANDMESH_HOME: home },
    stdio: ["ignore", "ignore", "ignore"],
  });
  const begun = () => runningSupervisor(homePaths(home)) !== undefined;
  await until("the supervisor's start", async () => begun());
  child.kill("SIGINT");
  await child.exited;
  await until("its end", async () => !begun());
  expect((await readdir(home)).filter((name) => /creds|mesh|supervisor/.test(name))).toEqual([]);
});

test("a folder that is there already, perhaps everybody's, keeps its mode when it becomes a mesh's home", async () => {
  await chmod(home, 0o1777);
  expect((await sandmesh("up")).code).toBe(0);
  expect((await sandmesh("down")).code).toBe(0);
  expect((await stat(home)).mode & 0o7777).toBe(0o1777);
});

test("a home that is removed while its mesh is up ends the mesh with its sandboxes, and nothing comes back", async () => {
  expect((await sandmesh("up")).code).toBe(0);
  expect((await sandmesh("acquire", "host")).code).toBe(0);
  expect(processesOf(home).length).toBeGreaterThan(3);
  await rm(home, { recursive: true });
  await until("the mesh's end", () => processesOf(home).length === 0, 30_000, 50);
  expect(await readdir(home).catch(() => "none")).toBe("none");
  expect(groupsOf(home)).toEqual([]);
  expect((await sandmesh("down")).stderr).toContain("no mesh is up");
});

test("down of a mesh whose home was removed ends all of it, also with a killed supervisor", async () => {
  for (const killed of [false, true]) {
    expect((await sandmesh("up")).code).toBe(0);
    expect((await sandmesh("acquire", "host")).code).toBe(0);
    const { pid } = JSON.parse(await readFile(join(home, "supervisor.json"), "utf8"));
    // It would see by itself, within a second, that its home is gone.
    process.kill(pid, "SIGSTOP");
    await rm(home, { recursive: true });
    if (killed) process.kill(pid, "SIGKILL");
    // Which wakes it.
    const ended = await sandmesh("down");
    expect([ended.code, ended.stdout]).toEqual([
      0,
      "left behind: 0 sandboxes, 0 processes, 0 mounts, 0 leases\n",
    ]);
    expect(processesOf(home)).toEqual([]);
  }
});

test("in a copy of a running mesh's home down and up are refused; down ended the other's mesh", async () => {
  expect((await sandmesh("up")).code).toBe(0);
  const box = (await sandmesh("acquire", "host")).stdout.trim();
  const copy = `${home}-copy`;
  try {
    expect(await Bun.spawn(["cp", "-a", home, copy]).exited).toBe(0);
    for (const command of ["down", "up"]) {
      const { code, stderr } = await sandmeshIn(copy, command);
      expect([code, stderr]).toEqual([1, expect.stringContaining(`${copy} is a copy of the home of a mesh`)]);
    }
    expect((await sandmesh("exec", box, "--", "echo", "works")).stdout).toBe("works\n");
    expect((await sandmesh("down")).code).toBe(0);
    // Nobody's any more, the copy is one as any other.
    expect((await sandmeshIn(copy, "up")).code).toBe(0);
    expect((await sandmeshIn(copy, "down")).code).toBe(0);
  } finally {
    await rm(copy, { recursive: true, force: true });
  }
});

test("down of a mesh whose relay stands still ends all of it; it waited for the relay's answer without end", async () => {
  expect((await sandmesh("up")).code).toBe(0);
  expect((await sandmesh("acquire", "host")).code).toBe(0);
  process.kill(await relayPid(homePaths(home).local), "SIGSTOP");
  const ended = await sandmesh("down");
  expect([ended.code, ended.stdout]).toEqual([
    0,
    "left behind: 0 sandboxes, 0 processes, 0 mounts, 0 leases\n",
  ]);
  expect(processesOf(home)).toEqual([]);
});

test("cgroups of a mesh that was killed, whose home was removed and whose sandboxes have ended, are removed by down", async () => {
  expect((await sandmesh("up")).code).toBe(0);
  expect((await sandmesh("acquire", "host")).code).toBe(0);
  const { mark, stateDir } = new Layout(homePaths(home).local);
  process.kill(JSON.parse(await readFile(join(home, "supervisor.json"), "utf8")).pid, "SIGKILL");
  await rm(home, { recursive: true });
  await killAll("what is left", async () => (await findMarked(mark, stateDir)).pids, 30_000);
  await until("all has ended", () => processesOf(home).length === 0, 30_000, 50);
  expect((await sandmesh("down")).stdout).toBe("left behind: 0 sandboxes, 0 processes, 0 mounts, 0 leases\n");
  expect(groupsOf(home)).toEqual([]);
  expect((await sandmesh("down")).stderr).toContain("no mesh is up");
});

test("an up in a home that was removed while its mesh was up starts a new one, and the old one leaves it alone", async () => {
  expect((await sandmesh("up")).code).toBe(0);
  const { pid } = JSON.parse(await readFile(join(home, "supervisor.json"), "utf8"));
  await rm(home, { recursive: true });
  expect((await sandmesh("up")).code).toBe(0);
  await until("the old one's end", async () => startOf(pid) === undefined);
  expect((await sandmesh("run", "host", "--", "echo", "works")).stdout).toBe("works\n");
  expect((await sandmesh("down")).code).toBe(0);
});

test("of many that find a dead supervisor's claim at once, one has the home", async () => {
  const claim = `import { claimHome, homePaths } from ${JSON.stringify(join(ROOT, "deploy", "local", "home.ts"))};
const other = claimHome(homePaths(${JSON.stringify(home)}));
console.log(other === undefined ? "mine" : "another's");
await new Promise((end) => process.stdin.once("end", end).resume());`;
  await writeFile(join(home, "supervisor.json"), JSON.stringify({ pid: 4_000_000, started: "1" }));
  const all = Array.from({ length: 6 }, () =>
    Bun.spawn([process.execPath, "-e", claim], { stdin: "pipe", stdout: "pipe", stderr: "inherit" }),
  );
  const lines = await Promise.all(
    all.map(async ({ stdout }) => Buffer.from((await stdout.getReader().read()).value ?? []).toString()),
  );
  for (const child of all) child.stdin.end();
  await Promise.all(all.map(({ exited }) => exited));
  expect(lines.sort()).toEqual([...Array(5).fill("another's\n"), "mine\n"]);
});

test("a damaged mesh.json is told with its name and what to do, by all, and up does not wait for it to mend", async () => {
  expect((await sandmesh("up")).code).toBe(0);
  await writeFile(homePaths(home).mesh, '{"url": "nats://127');
  const told = `${homePaths(home).mesh} is damaged: run \`sandmesh down\` and \`sandmesh up\``;
  for (const command of ["up", "ps"]) {
    const ran = await sandmesh(command);
    expect([ran.code, ran.stderr]).toEqual([1, expect.stringContaining(told)]);
  }
  expect((await sandmesh("down")).code).toBe(0);
  expect((await sandmesh("up")).code).toBe(0);
  expect((await sandmesh("down")).code).toBe(0);
});
