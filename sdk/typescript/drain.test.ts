// Who may drain: whose credential it is, and not what name it goes by.
import { expect, test } from "bun:test";
import { PermissionDeniedError } from "../../broker/contract/index.ts";
import { formatCreds } from "../../broker/credentials/index.ts";
import { testMesh } from "../../pool/testing/mesh.ts";
import { connectTo } from "./testing/harness.ts";

test("a user that drains is told at once that it may not, whatever it calls itself; an operator drains", async () => {
  await using mesh = await testMesh();
  const { server } = mesh;
  await using ann = await connectTo(server);
  await using poser = await connectTo(server, {}, "operator");
  const box = await ann.acquire({ image: "host" });
  for (const user of [ann, poser]) {
    const refused = await user.drain({ releaseAll: true }).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(PermissionDeniedError);
    expect(refused).toMatchObject({
      reason: "publish",
      message: expect.stringContaining("only an operator may drain"),
    });
  }
  expect(await ann.status()).toMatchObject({ draining: false });
  const credentials = formatCreds(server.keys.mintOperator({ tenant: "acme", user: "root" }));
  await using root = await connectTo(server, { credentials });
  expect(await root.drain()).toEqual({ draining: true, remaining: 1 });
  expect(await ann.acquire({ image: "host" }).catch((error: unknown) => error)).toMatchObject({
    code: "draining",
  });
  expect(await root.drain({ on: false })).toMatchObject({ draining: false });
  await box.release();
});
