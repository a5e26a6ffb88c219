// `bench files`: one file up and down through the whole wire, beside a NATS publish and subscribe pair of the same chunk
// size, in alternating rounds.
import { randomFillSync } from "node:crypto";
import { bench, numberFlag, percentile, progress, round } from "./bench.ts";
import { natsPair } from "./pair.ts";

const MIB = 1024 * 1024;

await bench({}, async ({ mesh }) => {
  const bytes = numberFlag("--mib", 64) * MIB;
  const rounds = numberFlag("--rounds", 8);
  await using pair = await natsPair();
  await using box = await mesh.acquire({ image: "host" });
  const content = randomFillSync(Buffer.alloc(bytes));
  const rates = { pair: [] as number[], up: [] as number[], down: [] as number[] };
  const rate = async (work: () => Promise<unknown>): Promise<number> => {
    const began = performance.now();
    await work();
    return bytes / (performance.now() - began) / 1000;
  };
  const up = () => box.files.write("/tmp/blob", content);
  const down = async () => {
    const back = await box.files.read("/tmp/blob");
    if (!content.equals(back)) throw new Error("other bytes came back");
  };
  for (let i = -1; i < rounds; i++) {
    const once = { pair: await pair.move(bytes), up: await rate(up), down: await rate(down) };
    if (i < 0) continue;
    for (const name of ["pair", "up", "down"] as const) rates[name].push(once[name]);
    const { pair: floor, up: upload, down: download } = once;
    progress(
      `round ${i + 1}/${rounds}: pair ${floor.toFixed(0)}, up ${upload.toFixed(0)}, down ${download.toFixed(0)} MB/s`,
    );
  }
  const p50 = (values: number[]) => percentile(values, 0.5);
  return {
    mib: bytes / MIB,
    pair_mb_per_s: round(p50(rates.pair), 0),
    upload_mb_per_s: round(p50(rates.up), 0),
    download_mb_per_s: round(p50(rates.down), 0),
    upload_ratio: round(p50(rates.up) / p50(rates.pair), 2),
    download_ratio: round(p50(rates.down) / p50(rates.pair), 2),
  };
});
