import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CanceledError, InvalidRequestError } from "../../broker/contract/index.ts";
import vectors from "../../broker/contract/vectors/credentials.json";
import { connect } from "./connect.ts";
import { NoMeshError } from "./errors.ts";
import { meshFilePath, readCredentials, resolveSettings } from "./settings.ts";

let home: string;
beforeEach(() => {
  home = mkdtempSync(join(tmpdir(), "sandmesh-settings-"));
});
afterEach(() => rmSync(home, { recursive: true }));

const creds = { text: vectors.creds };
const who = () => ({ tenant: vectors.tenant, user: vectors.user });

test("where nothing is up, the error says what to do", async () => {
  const resolve = () => resolveSettings({}, { SANDMESH_HOME: home });
  await expect(resolve()).rejects.toThrow(NoMeshError);
  await expect(resolve()).rejects.toThrow(/sandmesh up/);
});

test("options go before the environment, and that before the mesh that is up here", async () => {
  const path = join(home, "user.creds");
  writeFileSync(path, creds.text);
  writeFileSync(join(home, "mesh.json"), JSON.stringify({ url: "nats://file:1", credentials: path }));
  const env = { SANDMESH_HOME: home };
  expect(await resolveSettings({}, env)).toMatchObject({ urls: ["nats://file:1"], ...who() });
  const more = { ...env, SANDMESH_URL: "nats://env:1,nats://env:2" };
  expect((await resolveSettings({}, more)).urls).toEqual(["nats://env:1", "nats://env:2"]);
  expect(await resolveSettings({ url: "nats://option:1", credentials: creds.text }, more)).toMatchObject({
    urls: ["nats://option:1"],
    ...who(),
  });
});

test("a damaged mesh file and missing credentials are told apart", async () => {
  writeFileSync(join(home, "mesh.json"), "{");
  const env = { SANDMESH_HOME: home };
  await expect(resolveSettings({}, env)).rejects.toThrow(/damaged/);
  const none = resolveSettings({ url: "nats://a:1", credentials: join(home, "none") }, env);
  await expect(none).rejects.toThrow(/credentials: the file .* cannot be read/);
});

describe("a credential that comes by a pipe", () => {
  const url = "nats://a:1";

  test("is read once, to its end, and kept: nobody writes it again", async () => {
    const fifo = join(home, "fifo");
    Bun.spawnSync(["mkfifo", fifo]);
    const resolving = resolveSettings({ url, credentials: fifo }, {});
    const [head, tail] = [creds.text.slice(0, 100), creds.text.slice(100)];
    const writer = Bun.spawn(
      ["sh", "-c", 'exec > "$0"; printf %s "$1"; read end; printf %s "$2"', fifo, head, tail],
      {
        stdin: "pipe",
        stderr: "ignore",
      },
    );
    writer.stdin.write("\n");
    writer.stdin.end();
    expect(await resolving).toMatchObject({ credentials: creds.text, ...who() });
    expect(await writer.exited).toBe(0);
  });

  test("and does not, keeps no signal from being heard", async () => {
    const fifo = join(home, "fifo");
    Bun.spawnSync(["mkfifo", fifo]);
    const abort = new AbortController();
    const resolving = resolveSettings({ url, credentials: fifo }, {}, { signal: abort.signal });
    abort.abort();
    await expect(resolving).rejects.toThrow(CanceledError);
  });

  test.each(["credentials", "ca"])(
    "and does not as %s, ends the connecting at its time limit",
    async (field) => {
      const fifo = join(home, "fifo");
      Bun.spawnSync(["mkfifo", fifo]);
      const late = connect({ url, credentials: creds.text, [field]: fifo, connectTimeout: 50 });
      await expect(late).rejects.toMatchObject({
        code: "deadline_exceeded",
        field,
        message: `${field}: the end of ${fifo} did not come in time; does anyone write it?`,
      });
    },
  );
});

test("of a credential only the blocks count, whatever the bytes before them are", async () => {
  const path = join(home, "latin");
  writeFileSync(path, Buffer.concat([Buffer.from("J\xf6rg\n", "latin1"), Buffer.from(creds.text)]));
  expect(await resolveSettings({ url: "nats://a:1", credentials: path }, {})).toMatchObject(who());
});

test("a credential or a CA without end is refused by name, and does not fill the memory", async () => {
  const url = "nats://a:1";
  const endless = resolveSettings({ url, credentials: "/dev/zero" }, {});
  await expect(endless).rejects.toMatchObject({ code: "invalid_request", field: "credentials" });
  const ca = resolveSettings({ url, credentials: creds.text, ca: "/dev/zero" }, {});
  await expect(ca).rejects.toThrow("ca: /dev/zero is larger than 1024 KiB");
  expect(() => readCredentials("/dev/zero")).toThrow(InvalidRequestError);
});

test("the home folder follows the environment", () => {
  expect(meshFilePath({ SANDMESH_HOME: "/a" })).toBe("/a/mesh.json");
  expect(meshFilePath({ XDG_STATE_HOME: "/b" })).toBe("/b/sandmesh/mesh.json");
});

test("the home is the folder itself, whatever links lead there, and is named in UTF-8", () => {
  symlinkSync("real", join(home, "link"));
  const real = realpathSync(home);
  expect(meshFilePath({ SANDMESH_HOME: join(home, "link", "a") })).toBe(join(real, "real/a/mesh.json"));
  expect(() => meshFilePath({ SANDMESH_HOME: "/a\u{fffd}" })).toThrow(InvalidRequestError);
});
