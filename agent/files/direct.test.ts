import { expect, test } from "bun:test";
import {
  chmodSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DIRECT_BYTES, Direct } from "./direct.ts";
import { createFiles } from "./files.ts";

test("after a slow call the next files go by the threads, and then by plain calls again", () => {
  const direct = new Direct(false);
  expect(direct.run(() => 7)).toBe(7);
  expect(direct.allowed()).toBe(true);
  expect(() =>
    direct.run(() => {
      for (const until = performance.now() + 20; performance.now() < until; );
      throw new Error("slow, and failed");
    }),
  ).toThrow("slow, and failed");
  let threaded = 0;
  while (!direct.allowed()) threaded++;
  expect(threaded).toBe(500);
});

test("files of all sizes around the limit come through a tar as they were, and keep others waiting for no more than a turn", async () => {
  const root = mkdtempSync(join(tmpdir(), "direct-test-"));
  try {
    mkdirSync(join(root, "from"));
    const sizes = [0, 1, 511, 512, 513, DIRECT_BYTES - 1, DIRECT_BYTES, DIRECT_BYTES + 1, 3 * DIRECT_BYTES];
    for (const size of sizes) {
      writeFileSync(join(root, "from", `f${size}`), Buffer.alloc(size, `${size} `));
      chmodSync(join(root, "from", `f${size}`), 0o640);
    }
    for (let i = 0; i < 2_000; i++) writeFileSync(join(root, "from", `small${i}`), `${i}`);
    const files = createFiles({ cwd: "/" });
    const source = await files.pack(join(root, "from"));
    const sink = await files.unpack(join(root, "to"), false);
    let turns = 0;
    const ticking = setInterval(() => turns++, 1);
    for (let part = await source.read(100_000); part !== undefined; part = await source.read(100_000))
      await sink.write(part);
    await sink.finish();
    await source.close();
    clearInterval(ticking);
    expect(turns).toBeGreaterThan(2);
    const names = readdirSync(join(root, "from")).sort();
    expect(readdirSync(join(root, "to")).sort()).toEqual(names);
    for (const name of names) {
      const [from, to] = [join(root, "from", name), join(root, "to", name)];
      expect([name, readFileSync(to).equals(readFileSync(from)), statSync(to).mode]).toEqual([
        name,
        true,
        statSync(from).mode,
      ]);
    }
  } finally {
    rmSync(root, { recursive: true });
  }
}, 30_000);
