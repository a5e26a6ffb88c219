// The nats CLI's contexts: each mesh's own, and gone with it.
import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { formatCreds } from "../../broker/credentials/index.ts";
import { createOperatorKeys, keyRingOf } from "../../broker/server/operator.ts";
import type { Settings } from "../typescript/settings.ts";
import { forgetContextsBut, forgetContextsHere, writeContext } from "./nats-contexts.ts";
import { createProgram } from "./program.ts";

const before = { XDG_CONFIG_HOME: process.env.XDG_CONFIG_HOME, SANDMESH_HOME: process.env.SANDMESH_HOME };
let scratch: string;
let credentials: string;
beforeEach(() => {
  scratch = mkdtempSync(join(tmpdir(), "sandmesh-contexts-"));
  process.env.XDG_CONFIG_HOME = scratch;
  credentials = formatCreds(keyRingOf(createOperatorKeys()).mintUser({ tenant: "default", user: "me" }));
});
afterEach(() => {
  for (const [name, value] of Object.entries(before))
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  rmSync(scratch, { recursive: true });
});

/** Is from now on the mesh of this machine. */
function meshHere(port: number): Settings {
  process.env.SANDMESH_HOME = mkdtempSync(join(scratch, "home-"));
  const url = `nats://127.0.0.1:${port}`;
  writeFileSync(join(process.env.SANDMESH_HOME, "mesh.json"), JSON.stringify({ url, credentials: "/x" }));
  return { urls: [url], credentials, tenant: "default", user: "me" };
}

const contexts = () => readdirSync(join(scratch, "nats", "context")).sort();

test("two meshes of one user keep their contexts of the pool, and each takes its own with it", () => {
  const first = meshHere(4001);
  const firstHome = process.env.SANDMESH_HOME;
  const one = writeContext(first, "pool");
  const second = meshHere(4002);
  const other = writeContext(second, "pool");
  writeContext(second, "sb-1a2b");
  expect([one.name, writeContext(second, "pool").name]).toEqual(["sandmesh-pool", other.name]);
  expect(other.name).toMatch(/^sandmesh-pool-[0-9a-f]{6}$/);
  expect(JSON.parse(readFileSync(one.path, "utf8")).url).toBe("nats://127.0.0.1:4001");
  expect(JSON.parse(readFileSync(other.path, "utf8")).url).toBe("nats://127.0.0.1:4002");
  forgetContextsHere();
  expect(contexts()).toEqual(["sandmesh-pool.creds", "sandmesh-pool.json"]);
  process.env.SANDMESH_HOME = firstHome;
  forgetContextsHere();
  expect(contexts()).toEqual([]);
});

test("the context of a mesh that is gone, or of this one at another port, is written over", () => {
  const first = meshHere(4001);
  writeContext(first, "pool");
  rmSync(join(process.env.SANDMESH_HOME ?? "", "mesh.json"));
  const second = meshHere(4002);
  expect(writeContext(second, "pool").name).toBe("sandmesh-pool");
});

test("a mesh elsewhere, named by its address, is not the one of this machine: down leaves its context", () => {
  meshHere(4001);
  const elsewhere = { urls: ["tls://nats.example:4222"], credentials, tenant: "default", user: "me" };
  writeContext(elsewhere, "pool");
  forgetContextsHere();
  expect(contexts()).toEqual(["sandmesh-pool.creds", "sandmesh-pool.json"]);
});

test("contexts of sandboxes that others have released go, and no other mesh's, tenant's or the pool's", () => {
  const here = meshHere(4001);
  const elsewhere = { ...here, urls: ["tls://nats.example:4222"] };
  writeContext(here, "pool");
  for (const sandbox of ["sb-gone", "sb-there"]) writeContext(here, sandbox);
  writeContext({ ...here, tenant: "other" }, "sb-others");
  writeContext(elsewhere, "sb-elsewhere");
  forgetContextsBut(here, ["sb-there"]);
  const left = ["pool", "sb-elsewhere", "sb-others", "sb-there"];
  expect(contexts()).toEqual(left.flatMap((name) => [`sandmesh-${name}.creds`, `sandmesh-${name}.json`]));
});

test("contexts written under another XDG_CONFIG_HOME stay, and help says so", () => {
  const here = meshHere(4001);
  const elsewhere = join(scratch, "elsewhere");
  process.env.XDG_CONFIG_HOME = elsewhere;
  writeContext(here, "pool");
  process.env.XDG_CONFIG_HOME = scratch;
  writeContext(here, "pool");
  forgetContextsHere();
  expect(contexts()).toEqual([]);
  const left = ["sandmesh-pool.creds", "sandmesh-pool.json"];
  expect(readdirSync(join(elsewhere, "nats", "context")).sort()).toEqual(left);
  const help = createProgram()
    .commands.find((command) => command.name() === "context")
    ?.description();
  expect(help).toContain("under another XDG_CONFIG_HOME stays");
});
