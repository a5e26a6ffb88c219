// `bench boot`: from nothing to the first command, one sandbox after the other on an otherwise idle mesh.
import type { Sandbox } from "../../sdk/typescript/mod.ts";
import { bench, benchFlags, percentile, progress, round } from "./bench.ts";

const { n } = benchFlags<{ n: number }>("boot");
await bench({}, async ({ mesh }) => {
  const bootMs: number[] = [];
  const execToGrantedMs: number[] = [];
  const toFirstCommandMs: number[] = [];
  const execToFirstCommandMs: number[] = [];
  for (let i = 0; i < n; i++) {
    const began = performance.now();
    const box: Sandbox = await mesh.acquire({ image: "host" });
    const granted = performance.now();
    await box.exec(["/bin/true"], { check: true });
    const answered = performance.now();
    toFirstCommandMs.push(answered - began);
    const { boot_ms: boot } = await box.info();
    bootMs.push(boot);
    // The daemon's exec is `boot` before its ready, which is `ready_ms` after the acquire's arrival at the pool.
    const readyMs = box.grant?.timeline.ready_ms ?? Number.NaN;
    const beforeExecMs = began + readyMs - boot;
    execToGrantedMs.push(granted - beforeExecMs);
    execToFirstCommandMs.push(answered - beforeExecMs);
    await box.release();
    if ((i + 1) % 10 === 0) progress(`${i + 1}/${n}`);
  }
  return {
    n,
    boot_p50_ms: round(percentile(bootMs, 0.5), 1),
    boot_p99_ms: round(percentile(bootMs, 0.99), 1),
    exec_to_granted_p50_ms: round(percentile(execToGrantedMs, 0.5), 1),
    exec_to_first_command_p50_ms: round(percentile(execToFirstCommandMs, 0.5), 1),
    acquire_to_first_command_p50_ms: round(percentile(toFirstCommandMs, 0.5), 1),
  };
});
