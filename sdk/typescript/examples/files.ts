import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect, FileError } from "../mod.ts";

await using mesh = await connect();
await using box = await mesh.acquire({ image: "host" });

await box.files.write("work/main.py", "print(6 * 7)\n", { mode: 0o644 }); // appears whole, or not at all
console.log(await box.files.readText("work/main.py"));
for (const entry of await box.files.list("work")) console.log(entry.type, entry.size, entry.path);

const folder = await mkdtemp(join(tmpdir(), "sandmesh-example-"));
await box.files.download("work", join(folder, "work")); // folders with modes, links and times
await box.files.upload(join(folder, "work"), "copy");
console.log(await box.files.exists("copy/main.py"));

try {
  await box.files.read("nothing");
} catch (error) {
  if (!(error instanceof FileError)) throw error;
  console.log(error.reason);
}
