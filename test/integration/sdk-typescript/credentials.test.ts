// A client's credential that ends while it works: its file is written anew, and no call is lost.
import { expect, test } from "bun:test";
import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { formatCreds } from "../../../broker/credentials/index.ts";
import { liveMesh } from "./mesh.ts";

/** NATS counts in seconds. */
const TTL_MS = 3_000;
const RENEWED_EVERY_MS = 1_000;

test("renewed in its file, it is taken up as the old one ends: commands, acquires and the lease go on", async () => {
  const folder = await mkdtemp(join(tmpdir(), "sandmesh-creds-"));
  const path = join(folder, "user.creds");
  await using live = await liveMesh();
  let minted = 0;
  const renew = async (): Promise<void> => {
    const { keys } = live.server;
    const text = formatCreds(keys.mintUser({ tenant: "acme", user: "ann", ttlMs: TTL_MS }));
    await writeFile(`${path}.new`, text, { mode: 0o600 });
    await rename(`${path}.new`, path);
    minted++;
  };
  await renew();
  const timer = setInterval(() => void renew(), RENEWED_EVERY_MS);
  try {
    const mesh = await live.connect({ credentials: path, lease: "5s" });
    const box = await mesh.acquire({ image: "host" });
    // Over the ends of at least three credentials.
    const long = box.exec("for i in 1 2 3 4 5 6 7 8 9 10; do echo $i; sleep 1; done", { timeout: "60s" });
    const short: string[] = [];
    let acquired = 0;
    while (minted < 11) {
      const text = String(short.length);
      expect((await box.exec(["echo", text], { timeout: "20s" })).stdout.text).toBe(`${text}\n`);
      short.push(text);
      if (short.length % 200 !== 0) continue;
      await (await mesh.acquire({ image: "host" })).release();
      acquired++;
    }
    const result = await long;
    expect([result.exitCode, result.stdout.text]).toEqual([0, "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"]);
    expect(box.lost).toBeUndefined();
    expect(short.length + acquired).toBeGreaterThan(20);
  } finally {
    clearInterval(timer);
    await rm(folder, { recursive: true, force: true });
  }
}, 90_000);
