// What an observer's credential is for, and what it is told of all else.
import { expect, spyOn, test } from "bun:test";
import { PermissionDeniedError } from "../../broker/contract/index.ts";
import { formatCreds } from "../../broker/credentials/index.ts";
import { testMesh } from "../../pool/testing/mesh.ts";
import { connectTo } from "./testing/harness.ts";

test("an observer hears events; whatever it asks is refused by one error that says so, and nothing is printed", async () => {
  await using mesh = await testMesh();
  const { server } = mesh;
  await using ann = await connectTo(server);
  const credentials = formatCreds(server.keys.mintObserver({ tenant: "acme" }));
  await using observer = await connectTo(server, { credentials });
  const printed = spyOn(console, "error");
  try {
    const box = observer.sandbox("sb-none");
    const asked = [
      () => observer.list(),
      () => observer.acquire({ image: "host" }),
      () => box.exec("true"),
      () => box.files.readText("/etc/hosts"),
    ];
    for (const ask of asked) {
      const refused = await ask().catch((error: unknown) => error);
      expect(refused).toBeInstanceOf(PermissionDeniedError);
      expect(String(refused)).toContain("it may listen to events, and ask nothing");
    }
    const events = observer.events()[Symbol.asyncIterator]();
    const heard = events.next();
    await (await ann.acquire({ image: "host" })).release();
    expect((await heard).value).toMatchObject({ sandbox: expect.any(String) });
    await events.return?.();
    expect(printed).not.toHaveBeenCalled();
  } finally {
    printed.mockRestore();
  }
});
