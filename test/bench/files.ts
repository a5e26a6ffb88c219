// `bench files`: one file up and down through the whole wire, beside a NATS publish and subscribe pair of the same chunk
// size, in alternating rounds.
import { randomFillSync } from "node:crypto";
import { bench, benchFlags, percentile, progress, round } from "./bench.ts";
import { natsPair } from "./pair.ts";
import { CpuMeter, pathPids } from "./usage.ts";

const MIB = 1024 * 1024;

const { mib, rounds } = benchFlags<{ mib: number; rounds: number }>("files");
const bytes = mib * MIB;
await bench({}, async ({ mesh, home }) => {
  await using pair = await natsPair();
  await using box = await mesh.acquire({ image: "host" });
  const content = randomFillSync(Buffer.alloc(bytes));
  const pids = pathPids(home);
  const cpu = { pair: new CpuMeter(pair.pids), up: new CpuMeter(pids), down: new CpuMeter(pids) };
  const rates = { pair: [] as number[], up: [] as number[], down: [] as number[] };
  const mb = bytes / 1e6;
  const rate = async (work: () => Promise<unknown>): Promise<number> => {
    const began = performance.now();
    await work();
    return bytes / (performance.now() - began) / 1000;
  };
  const up = () => box.files.write("/tmp/blob", content);
  let back: Uint8Array = new Uint8Array(0);
  const down = async () => {
    back = await box.files.read("/tmp/blob");
  };
  const measure = async () => {
    const once = {
      pair: await cpu.pair.during(mb, () => pair.move(bytes)),
      up: await cpu.up.during(mb, () => rate(up)),
      down: await cpu.down.during(mb, () => rate(down)),
    };
    if (!content.equals(back)) throw new Error("other bytes came back");
    return once;
  };
  for (let i = -1; i < rounds; i++) {
    const once = await measure();
    if (i < 0) continue;
    for (const name of ["pair", "up", "down"] as const) rates[name].push(once[name]);
    const { pair: floor, up: upload, down: download } = once;
    progress(
      `round ${i + 1}/${rounds}: pair ${floor.toFixed(0)}, up ${upload.toFixed(0)}, down ${download.toFixed(0)} MB/s`,
    );
  }
  const p50 = (values: number[]) => percentile(values, 0.5);
  return {
    mib,
    pair_mb_per_s: round(p50(rates.pair), 0),
    upload_mb_per_s: round(p50(rates.up), 0),
    download_mb_per_s: round(p50(rates.down), 0),
    upload_ratio: round(p50(rates.up) / p50(rates.pair), 2),
    download_ratio: round(p50(rates.down) / p50(rates.pair), 2),
    ...cpu.pair.fields("pair_", "us_per_mb"),
    ...cpu.up.fields("upload_", "us_per_mb"),
    ...cpu.down.fields("download_", "us_per_mb"),
  };
});
