import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect, FileError } from "../mod.ts";

await using mesh = await connect();
await using box = await mesh.acquire({ image: "host" });

await box.files.write("/tmp/sandmesh-demo/main.py", "print(6 * 7)\n", { mode: 0o644 }); // appears whole, or not at all
console.log(await box.files.readText("/tmp/sandmesh-demo/main.py"));
for (const entry of await box.files.list("/tmp/sandmesh-demo"))
  console.log(entry.type, entry.size, entry.path);

const folder = await mkdtemp(join(tmpdir(), "sandmesh-example-"));
try {
  await box.files.download("/tmp/sandmesh-demo", join(folder, "demo")); // folders with modes, links and times
  await box.files.upload(join(folder, "demo"), "/tmp/sandmesh-copy");
  console.log(await box.files.exists("/tmp/sandmesh-copy/main.py"));
} finally {
  await rm(folder, { recursive: true });
}

try {
  await box.files.read("/tmp/sandmesh-demo/nothing");
} catch (error) {
  if (!(error instanceof FileError)) throw error;
  console.log(error.reason);
}
