// The cluster's own bookkeeping, on folders of its form: no cluster is needed.
import { afterEach, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../../broker/server/testing.ts";

const folders: string[] = [];
const children: ReturnType<typeof Bun.spawn>[] = [];
afterEach(async () => {
  for (const child of children.splice(0)) {
    child.kill("SIGKILL");
    await child.exited;
  }
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
});

const beganOf = (pid: number): string => {
  const stat = readFileSync(`/proc/${pid}/stat`, "latin1");
  return stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19] ?? "";
};

/** As `up` leaves it, with these processes. */
function clusterOf(...names: string[]) {
  const folder = mkdtempSync(join(tmpdir(), "sandmesh-cluster-test-"));
  folders.push(folder);
  mkdirSync(join(folder, "pids"));
  writeFileSync(join(folder, "kubeconfig"), "");
  const started = names.map((name) => {
    const child = Bun.spawn(["sleep", "600"]);
    children.push(child);
    writeFileSync(join(folder, "pids", name), `${child.pid} ${beganOf(child.pid)}\n`);
    return child;
  });
  const whole = (): boolean =>
    Bun.spawnSync(["bash", "-c", `. ${join(import.meta.dir, "lib.sh")}; whole`], {
      env: { ...process.env, SANDMESH_CLUSTER_DIR: folder },
    }).exitCode === 0;
  return { folder, started, whole };
}

test("a cluster of which any process has died is not taken for one that is up", async () => {
  const { started, whole } = clusterOf("etcd", "apiserver");
  expect(whole()).toBe(true);
  started[1]?.kill("SIGKILL");
  await started[1]?.exited;
  expect(whole()).toBe(false);
});

test("a program that a test has frozen goes on when that test's process is killed", async () => {
  const { folder, started } = clusterOf("etcd");
  const stateOf = () => readFileSync(`/proc/${started[0]?.pid}/stat`, "latin1").match(/\) (\w)/)?.[1];
  const programs = join(import.meta.dir, "programs.ts");
  const script = `(await import(${JSON.stringify(programs)})).frozen("etcd", () => Bun.sleep(600_000))`;
  const env = { ...process.env, SANDMESH_CLUSTER_DIR: folder };
  const child = Bun.spawn([process.execPath, "-e", script], { env, stdio: ["ignore", "inherit", "inherit"] });
  children.push(child);
  await until("it is frozen", () => stateOf() === "T");
  child.kill("SIGKILL");
  await until("it goes on", () => stateOf() === "S");
});

test("another process that has a dead one's number now is not taken for it", () => {
  const { folder, started, whole } = clusterOf("etcd");
  writeFileSync(join(folder, "pids", "etcd"), `${started[0]?.pid} 1\n`);
  expect(whole()).toBe(false);
});

test("one that is still coming up, or whose folder alone is left, is not up", () => {
  const { folder, whole } = clusterOf("etcd");
  rmSync(join(folder, "kubeconfig"));
  expect(whole()).toBe(false);
  expect(clusterOf().whole()).toBe(false);
});
