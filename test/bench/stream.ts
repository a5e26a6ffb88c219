// `bench stream`: a command's output through the whole wire, beside a NATS publish and subscribe pair of the same chunk
// size, in alternating rounds.
import { bench, benchFlags, percentile, progress, round } from "./bench.ts";
import { natsPair } from "./pair.ts";
import { CpuMeter, pathPids, privateDirtyMb } from "./usage.ts";

const MB = 1_000_000;

const { mb, rounds } = benchFlags<{ mb: number; rounds: number }>("stream");
const bytes = mb * MB;
/** How often the daemon's memory is looked at. */
const every = Math.min(32 * MB, bytes / 2);
await bench({}, async ({ mesh, home }) => {
  await using pair = await natsPair();
  await using box = await mesh.acquire({ image: "host" });
  const pids = pathPids(home);
  const cpu = { ours: new CpuMeter(pids), pair: new CpuMeter(pair.pids) };
  const ours: number[] = [];
  const floor: number[] = [];
  let mostMb = 0;
  const stream = async (): Promise<number> => {
    const began = performance.now();
    let got = 0;
    for await (const { data } of box.stream(["head", "-c", String(bytes), "/dev/zero"])) {
      got += data.length;
      if (got % every < data.length) mostMb = Math.max(mostMb, privateDirtyMb(pids.daemon));
    }
    if (got !== bytes) throw new Error(`${got} bytes came, not ${bytes}`);
    return bytes / (performance.now() - began) / 1000;
  };
  await pair.move(bytes / 4);
  await stream();
  for (let i = 0; i < rounds; i++) {
    floor.push(await cpu.pair.during(bytes / MB, () => pair.move(bytes)));
    ours.push(await cpu.ours.during(bytes / MB, stream));
    progress(
      `round ${i + 1}/${rounds}: pair ${floor.at(-1)?.toFixed(0)}, ours ${ours.at(-1)?.toFixed(0)} MB/s`,
    );
  }
  const p50 = (values: number[]) => percentile(values, 0.5);
  return {
    mb,
    pair_mb_per_s: round(p50(floor), 0),
    stream_mb_per_s: round(p50(ours), 0),
    stream_ratio: round(p50(ours) / p50(floor), 2),
    private_dirty_peak_mb: round(mostMb, 1),
    ...cpu.ours.fields("", "us_per_mb"),
    ...cpu.pair.fields("pair_", "us_per_mb"),
  };
});
