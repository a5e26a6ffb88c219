// What a daemon's file operations can reach by its own descriptors (/proc/self/fd), which commands cannot open.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { statSync } from "node:fs";
import { basename } from "node:path";
import { connect, type Mesh } from "../../sdk/typescript/mod.ts";
import { type LocalMesh, localMesh } from "./program.ts";

let local: LocalMesh;
let mesh: Mesh;
beforeAll(async () => {
  local = await localMesh();
  mesh = await connect({ url: local.url, credentials: local.credentials });
}, 60_000);
afterAll(async () => {
  await mesh.close();
  await local[Symbol.asyncDispose]();
}, 60_000);

test("no descriptor of the daemon's is a file of the machine, and none leads to one of its folders", async () => {
  const modeOfNull = statSync("/dev/null").mode;
  await using box = await mesh.acquire({ image: "host" });
  // So that it has the groups for commands, where there are any.
  await box.exec("true", { timeout: "10s" });
  const names = async (path: string): Promise<string[]> =>
    (await box.files.list(path)).map((entry) => basename(entry.path)).sort();
  // Which the machine's root has not.
  await box.files.write("/only-here", "");
  const inside = [await names("/")];
  const tops: string[][] = [];
  for (const fd of await names("/proc/self/fd")) {
    const path = `/proc/self/fd/${fd}`;
    await box.files.chmod(path, 0o600).catch(() => undefined);
    const entries = await names(path).catch(() => undefined);
    if (entries === undefined) continue;
    inside.push(entries);
    tops.push(await names(`${path}${"/..".repeat(12)}`));
  }
  expect(statSync("/dev/null").mode).toBe(modeOfNull);
  for (const top of tops) expect(inside).toContainEqual(top);
}, 60_000);
