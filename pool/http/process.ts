// What every Prometheus client tells of its process, by the conventional names; prom-client's own under Bun include
// values that do not parse (NaN of an event loop monitor that is not there).
import { readdirSync } from "node:fs";
import { Counter, Gauge, type Registry } from "prom-client";

/** How often the event loop's lag is looked at; the worst since the last scrape is told. */
const LAG_EVERY_MS = 100;

export function measureProcess(registry: Registry): void {
  const registers = [registry];
  const cpu: Counter = new Counter({
    name: "process_cpu_seconds_total",
    help: "Seconds of CPU, user and system",
    registers,
    collect: () => {
      const { user, system } = process.cpuUsage();
      cpu.reset();
      cpu.inc((user + system) / 1e6);
    },
  });
  const gauge = (name: string, help: string, read: () => number): void => {
    const made: Gauge = new Gauge({ name, help, registers, collect: () => made.set(read()) });
  };
  gauge("process_resident_memory_bytes", "Resident memory", () => process.memoryUsage.rss());
  gauge("process_open_fds", "Open files", () => readdirSync("/proc/self/fd").length);
  const startedAt = Date.now() / 1000 - process.uptime();
  gauge("process_start_time_seconds", "Since the epoch", () => startedAt);
  gauge("sandmesh_event_loop_lag_seconds", "The worst since the last scrape", worstLag());
}

function worstLag(): () => number {
  let worst = 0;
  let due = performance.now() + LAG_EVERY_MS;
  setInterval(() => {
    const now = performance.now();
    worst = Math.max(worst, now - due);
    due = now + LAG_EVERY_MS;
  }, LAG_EVERY_MS).unref();
  return () => {
    // A stall that is still unnoticed by the timer counts as well.
    const lag = Math.max(worst, performance.now() - due, 0);
    worst = 0;
    return lag / 1000;
  };
}
