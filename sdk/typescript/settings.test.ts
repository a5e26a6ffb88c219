import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import vectors from "../../broker/contract/vectors/credentials.json";
import { NoMeshError } from "./errors.ts";
import { meshFilePath, resolveSettings } from "./settings.ts";

let home: string;
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "sandmesh-settings-"));
});
afterEach(() => rmSync(home, { recursive: true }));

const creds = { text: vectors.creds };
const who = () => ({ tenant: vectors.tenant, user: vectors.user });

test("where nothing is up, the error says what to do", () => {
  const resolve = () => resolveSettings({}, { SANDMESH_HOME: home });
  expect(resolve).toThrow(NoMeshError);
  expect(resolve).toThrow(/sandmesh up/);
});

test("options go before the environment, and that before the mesh that is up here", () => {
  const path = join(home, "user.creds");
  writeFileSync(path, creds.text);
  writeFileSync(join(home, "mesh.json"), JSON.stringify({ url: "nats://file:1", credentials: path }));
  const env = { SANDMESH_HOME: home };
  expect(resolveSettings({}, env)).toMatchObject({ urls: ["nats://file:1"], ...who() });
  const more = { ...env, SANDMESH_URL: "nats://env:1,nats://env:2" };
  expect(resolveSettings({}, more).urls).toEqual(["nats://env:1", "nats://env:2"]);
  expect(resolveSettings({ url: "nats://option:1", credentials: creds.text }, more)).toMatchObject({
    urls: ["nats://option:1"],
    ...who(),
  });
});

test("a damaged mesh file and missing credentials are told apart", () => {
  writeFileSync(join(home, "mesh.json"), "{");
  const env = { SANDMESH_HOME: home };
  expect(() => resolveSettings({}, env)).toThrow(/damaged/);
  expect(() => resolveSettings({ url: "nats://a:1", credentials: join(home, "none") }, env)).toThrow(
    /credentials file .* cannot be read/,
  );
});

test("the home folder follows the environment", () => {
  expect(meshFilePath({ SANDMESH_HOME: "/a" })).toBe("/a/mesh.json");
  expect(meshFilePath({ XDG_STATE_HOME: "/b" })).toBe("/b/sandmesh/mesh.json");
});
