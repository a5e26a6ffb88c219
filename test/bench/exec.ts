// `bench exec`: a no-op command through the whole wire, beside a C loop of posix_spawn in the same sandbox.
//
// Both run the same program (/bin/true) with two pipes read to their end, in alternating rounds, so that a noisy
// machine is noisy for both. With `--image IMAGE` it is measured on the mesh that SANDMESH_URL names, in a sandbox of that
// image, and nothing is said of the processes' CPU.
import { connect, type Sandbox } from "../../sdk/typescript/mod.ts";
import { bench, benchFlags, percentile, progress, report, round } from "./bench.ts";
import { installFloor, runFloor } from "./floor.ts";
import { natsPair } from "./pair.ts";
import { CpuMeter, type PathPids, pathPids } from "./usage.ts";

const ROUNDS = 10;
const NOOP = ["/bin/true"];
const SHELL_NOOP = "true";

async function timed(times: number, once: () => Promise<unknown>): Promise<number[]> {
  const took: number[] = [];
  for (let i = 0; i < times; i++) {
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

/** `pids`: where they are to be had. */
async function measure(box: Sandbox, n: number, pids?: PathPids): Promise<object> {
  const each = Math.max(1, Math.round(n / ROUNDS));
  const times: Record<"floor" | "argv" | "ping" | "pair" | "shellFloor" | "shell" | "session", number[]> = {
    floor: [],
    argv: [],
    ping: [],
    pair: [],
    shellFloor: [],
    shell: [],
    session: [],
  };
  const c32: number[] = [];
  const c32Floor: number[] = [];
  const [cpu, c32Cpu] = pids === undefined ? [] : [new CpuMeter(pids), new CpuMeter(pids)];
  const metered = <T>(meter: CpuMeter | undefined, count: number, work: () => Promise<T>): Promise<T> =>
    meter === undefined ? work() : meter.during(count, work);
  const session = await box.shell();
  await using pair = await natsPair();
  await installFloor(box);
  await timed(100, () => box.exec(NOOP, { check: true }));
  await timed(100, () => pair.ping());
  for (let i = 0; i < ROUNDS; i++) {
    times.floor.push(...(await runFloor(box, each, 1, NOOP)).ms);
    times.argv.push(...(await metered(cpu, each, () => timed(each, () => box.exec(NOOP, { check: true })))));
    times.ping.push(...(await timed(each, () => box.ping())));
    times.pair.push(...(await timed(each, () => pair.ping())));
    times.shellFloor.push(...(await runFloor(box, each, 1, ["/bin/bash", "-c", SHELL_NOOP])).ms);
    times.shell.push(...(await timed(each, () => box.exec(SHELL_NOOP, { check: true }))));
    times.session.push(...(await timed(each, () => session.exec(SHELL_NOOP))));
    c32Floor.push((await runFloor(box, each * 4, 32, NOOP)).per_s);
    c32.push(
      await metered(c32Cpu, each * 4, () => throughput(each * 4, 32, () => box.exec(NOOP, { check: true }))),
    );
    progress(
      `round ${i + 1}/${ROUNDS}: floor ${round(percentile(times.floor, 0.5))} ms, argv ${round(percentile(times.argv, 0.5))} ms`,
    );
  }
  const p50 = (values: number[]) => round(percentile(values, 0.5));
  return {
    n: times.argv.length,
    floor_p50_ms: p50(times.floor),
    argv_p50_ms: p50(times.argv),
    argv_p99_ms: round(percentile(times.argv, 0.99)),
    ping_p50_ms: p50(times.ping),
    pair_ping_p50_ms: p50(times.pair),
    argv_ratio: round(percentile(times.argv, 0.5) / percentile(times.floor, 0.5), 2),
    shell_floor_p50_ms: p50(times.shellFloor),
    shell_p50_ms: p50(times.shell),
    shell_ratio: round(percentile(times.shell, 0.5) / percentile(times.shellFloor, 0.5), 2),
    session_p50_ms: p50(times.session),
    c32_per_s: Math.round(percentile(c32, 0.5)),
    c32_floor_per_s: Math.round(percentile(c32Floor, 0.5)),
    // Of a no-op; the child's own time is not in it.
    ...cpu?.fields(),
    ...c32Cpu?.fields("c32_"),
  };
}

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
