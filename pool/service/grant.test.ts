// What a grant says.
import { expect, test } from "bun:test";
import { newUuidV7 } from "../../broker/contract/index.ts";
import { testMesh } from "../testing/mesh.ts";

test("a limit that the provider cannot hold is in the grant, also in one that is asked for again", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  expect((await ann.lease()).warnings).toEqual([]);
  mesh.provider.words = ["memory: not held"];
  const id = newUuidV7();
  const grant = await ann.acquire({ id });
  expect(grant.warnings).toEqual(["memory: not held"]);
  await mesh.pool.close();
  await mesh.start();
  expect(await ann.acquire({ id })).toEqual(grant);
});
