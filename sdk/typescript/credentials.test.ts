// A credential that the server refuses for a while: what is held stays held, and is renewed once a good one is there.
import { expect, test } from "bun:test";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../../broker/server/testing.ts";
import { testMesh } from "../../pool/testing/mesh.ts";
import { connectAs } from "./connect.ts";
import { credentialsOf } from "./testing/harness.ts";

test("a credential that is refused for some seconds loses no sandbox whose lease lives on", async () => {
  await using pool = await testMesh();
  await using other = await testMesh();
  await using all = new AsyncDisposableStack();
  const folder = await mkdtemp(join(tmpdir(), "sandmesh-credential-"));
  all.defer(() => rm(folder, { recursive: true }));
  const credentials = join(folder, "user.creds");
  await writeFile(credentials, credentialsOf(pool.server));
  const where = { url: pool.server.url, credentials, handleSignals: false, lease: "10s" };
  const mesh = all.use(await connectAs(where, {}));
  const box = await mesh.acquire({ image: "host" });
  // Long enough for the renewing thread to be connected, and for a renewal to be due while it is refused.
  await Bun.sleep(1_000);
  await writeFile(credentials, credentialsOf(other.server));
  await pool.server.kill();
  await pool.server.restart();
  const refused = { code: "permission_denied", reason: "credential" };
  await until("the credential is refused", () =>
    mesh.status().then(
      () => false,
      (error: { code: string; reason?: string }) =>
        error.code === refused.code && error.reason === refused.reason,
    ),
  );
  await Bun.sleep(4_500);
  expect(box.lost).toBeUndefined();
  await writeFile(credentials, credentialsOf(pool.server));
  await until(
    "it is taken again",
    () =>
      mesh.status().then(
        () => true,
        () => false,
      ),
    20_000,
  );
  await Bun.sleep(8_000);
  expect(box.lost).toBeUndefined();
  expect(pool.provider.made.has(box.id)).toBe(true);
}, 90_000);
