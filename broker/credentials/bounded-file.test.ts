import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readBounded } from "./bounded-file.ts";

let folder: string;
let fifo: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "sandmesh-bounded-"));
  fifo = join(folder, "fifo");
  Bun.spawnSync(["mkfifo", fifo]);
});
afterEach(() => rmSync(folder, { recursive: true }));

test("a fifo that nobody writes is told by name, and not waited for without end", () => {
  const message = `kubeconfig: ${fifo} is no regular file, and nobody writes to it`;
  const refused = expect.objectContaining({ field: "kubeconfig", message });
  expect(() => readBounded(fifo, "kubeconfig", 50)).toThrow(refused);
});

test("what is written in parts to a fifo is read to its end", async () => {
  const writer = Bun.spawn(["sh", "-c", "exec > $0; echo one; sleep 0.2; echo two", fifo]);
  expect(readBounded(fifo, "config")).toBe("one\ntwo\n");
  expect(await writer.exited).toBe(0);
});

test("a pipe that has no name ends with its writer, also where nothing came", () => {
  const read = `import { readBounded } from ${JSON.stringify(join(import.meta.dir, "bounded-file.ts"))};
    console.write(JSON.stringify(process.argv.slice(2).map((path) => readBounded(path, "config"))));`;
  writeFileSync(join(folder, "read.ts"), read);
  const script = '"$0" "$1" <(:) <(echo one; sleep 0.2; echo two)';
  const { stdout } = Bun.spawnSync(["bash", "-c", script, process.execPath, join(folder, "read.ts")]);
  expect(stdout.toString()).toBe(JSON.stringify(["", "one\ntwo\n"]));
});
