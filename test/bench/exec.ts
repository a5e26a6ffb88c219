// `bench exec`: a no-op command through the whole wire, beside a C loop of posix_spawn in the same sandbox.
//
// Both run the same program (/bin/true) with two pipes read to their end, in alternating rounds, so that a noisy
// machine is noisy for both: one upon the other, and, as `rested_…`, each some milliseconds after the one before, as
// agents have commands run, which think in between. With `--image IMAGE` it is measured on the mesh that SANDMESH_URL
// names, in a sandbox of that image, and nothing is said of the processes' CPU.
import { connect, type Sandbox } from "../../sdk/typescript/mod.ts";
import { bench, benchFlags, percentile, progress, report, round } from "./bench.ts";
import { installFloor, runFloor } from "./floor.ts";
import { natsPair, type Pair } from "./pair.ts";
import { CpuMeter, type PathPids, pathPids } from "./usage.ts";

const ROUNDS = 10;
const NOOP = ["/bin/true"];
const SHELL_NOOP = "true";

/** Before each of those that are called rested, ms. */
const REST_MS = 5;

async function timed(times: number, restMs: number, once: () => Promise<unknown>): Promise<number[]> {
  const took: number[] = [];
  for (let i = 0; i < times; i++) {
    if (restMs > 0) await Bun.sleep(restMs);
    const began = performance.now();
    await once();
    took.push(performance.now() - began);
  }
  return took;
}

/** Commands a second with `width` of them under way. */
async function throughput(count: number, width: number, once: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  let next = 0;
  await Promise.all(
    Array.from({ length: width }, async () => {
      while (next++ < count) await once();
    }),
  );
  return (count / (performance.now() - began)) * 1000;
}

type Measured = (count: number, restMs: number) => Promise<number[]>;

async function kindsOf(box: Sandbox, pair: Pair) {
  const session = await box.shell();
  const floor =
    (program: string[]): Measured =>
    async (count, restMs) =>
      (await runFloor(box, program, { count, restMs })).ms;
  const ours =
    (once: () => Promise<unknown>): Measured =>
    (count, restMs) =>
      timed(count, restMs, once);
  return {
    floor: floor(NOOP),
    argv: ours(() => box.exec(NOOP, { check: true })),
    ping: ours(() => box.ping()),
    pair: ours(() => pair.ping()),
    shellFloor: floor(["/bin/bash", "-c", SHELL_NOOP]),
    shell: ours(() => box.exec(SHELL_NOOP, { check: true })),
    session: ours(() => session.exec(SHELL_NOOP)),
  };
}

type Kinds = Awaited<ReturnType<typeof kindsOf>>;
type Times = Record<keyof Kinds, number[]>;

const noTimes = (): Times => ({
  floor: [],
  argv: [],
  ping: [],
  pair: [],
  shellFloor: [],
  shell: [],
  session: [],
});

const p50 = (values: number[]): number => round(percentile(values, 0.5));
const ratio = (ours: number[], floor: number[]): number =>
  round(percentile(ours, 0.5) / percentile(floor, 0.5), 2);

/** `pids`: where they are to be had. */
async function measure(box: Sandbox, n: number, pids?: PathPids): Promise<object> {
  const each = Math.max(1, Math.round(n / ROUNDS));
  const restedEach = Math.max(1, Math.round(each / 5));
  await using pair = await natsPair();
  const kinds = await kindsOf(box, pair);
  const times = noTimes();
  const rested = noTimes();
  const c32 = { floor: [] as number[], ours: [] as number[] };
  const [cpu, c32Cpu] = pids === undefined ? [] : [new CpuMeter(pids), new CpuMeter(pids)];
  const metered = <T>(meter: CpuMeter | undefined, count: number, work: () => Promise<T>): Promise<T> =>
    meter === undefined ? work() : meter.during(count, work);
  await installFloor(box);
  await kinds.argv(100, 0);
  await kinds.pair(100, 0);
  for (let i = 0; i < ROUNDS; i++) {
    for (const name of Object.keys(kinds) as (keyof Kinds)[]) {
      const meter = name === "argv" ? cpu : undefined;
      times[name].push(...(await metered(meter, each, () => kinds[name](each, 0))));
      rested[name].push(...(await kinds[name](restedEach, REST_MS)));
    }
    const many = each * 4;
    c32.floor.push((await runFloor(box, NOOP, { count: many, concurrency: 32 })).per_s);
    c32.ours.push(
      await metered(c32Cpu, many, () => throughput(many, 32, () => box.exec(NOOP, { check: true }))),
    );
    progress(`round ${i + 1}/${ROUNDS}: floor ${p50(times.floor)} ms, argv ${p50(times.argv)} ms`);
  }
  return {
    n: times.argv.length,
    ...fieldsOf(times),
    argv_p99_ms: round(percentile(times.argv, 0.99)),
    ...Object.fromEntries(Object.entries(fieldsOf(rested)).map(([name, value]) => [`rested_${name}`, value])),
    c32_per_s: Math.round(percentile(c32.ours, 0.5)),
    c32_floor_per_s: Math.round(percentile(c32.floor, 0.5)),
    // Of a no-op; the child's own time is not in it.
    ...cpu?.fields(),
    ...c32Cpu?.fields("c32_"),
  };
}

const fieldsOf = (times: Times) => ({
  floor_p50_ms: p50(times.floor),
  argv_p50_ms: p50(times.argv),
  ping_p50_ms: p50(times.ping),
  pair_ping_p50_ms: p50(times.pair),
  argv_ratio: ratio(times.argv, times.floor),
  shell_floor_p50_ms: p50(times.shellFloor),
  shell_p50_ms: p50(times.shell),
  shell_ratio: ratio(times.shell, times.shellFloor),
  session_p50_ms: p50(times.session),
});

const { n, image } = benchFlags<{ n: number; image?: string }>("exec");
if (image === undefined) {
  await bench({}, async ({ mesh, home }) => {
    await using box = await mesh.acquire({ image: "host" });
    return await measure(box, n, pathPids(home));
  });
} else {
  await report(async () => {
    await using mesh = await connect();
    await using box = await mesh.acquire({ image });
    return await measure(box, n);
  });
}
