// `bench agent`: what a daemon costs: its boot, its memory at rest and after 1,000 commands, how often it wakes while
// nothing happens, and its size on disk beyond the runtime's own.
import { statSync } from "node:fs";
import { join } from "node:path";
import { DAEMON_FOLDER } from "../../agent/build.ts";
import { bench, benchFlags, percentile, progress, round } from "./bench.ts";
import { pathPids, privateDirtyMb, sleeps } from "./usage.ts";

const COMMANDS = 1000;
const MIB = 1024 * 1024;

const { n: boots, idleS } = benchFlags<{ n: number; idleS: number }>("agent");
await bench({}, async ({ mesh, home }) => {
  const bootMs: number[] = [];
  for (let i = 0; i < boots; i++) {
    await using box = await mesh.acquire({ image: "host" });
    bootMs.push((await box.info()).boot_ms);
  }
  progress(`boot ${percentile(bootMs, 0.5).toFixed(1)} ms`);
  await using box = await mesh.acquire({ image: "host" });
  const { daemon } = pathPids(home);
  await Bun.sleep(3000);
  const atRest = privateDirtyMb(daemon);
  const before = sleeps(daemon);
  await Bun.sleep(idleS * 1000);
  const wakeups = sleeps(daemon) - before;
  progress(`at rest ${atRest.toFixed(1)} MB, ${wakeups} wake-ups in ${idleS} s`);
  for (let i = 0; i < COMMANDS; i++) await box.exec(["/bin/true"], { check: true });
  const size = statSync(join(DAEMON_FOLDER, "sandmesh-daemon")).size;
  return {
    n: boots,
    boot_p50_ms: round(percentile(bootMs, 0.5), 1),
    boot_p99_ms: round(percentile(bootMs, 0.99), 1),
    private_dirty_mb: round(atRest, 1),
    private_dirty_after_1000_mb: round(privateDirtyMb(daemon), 1),
    wakeups_per_s: round(wakeups / idleS, 2),
    size_over_runtime_mb: round((size - statSync(process.execPath).size) / MIB, 1),
  };
});
