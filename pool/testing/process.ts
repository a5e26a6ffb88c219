// For tests: a pool as a process of its own, that can be killed. Its provider is elsewhere (remote.ts).
import { heapStats } from "bun:jsc";
import pino from "pino";
import * as v from "valibot";
import { connect } from "../../broker/link/connect.ts";
import { KeyRing } from "../../broker/server/index.ts";
import { createSimulatedProvider } from "../provider/simulated/index.ts";
import { openRecords } from "../records/jetstream.ts";
import { startPool } from "../service/pool.ts";
import { remoteProvider } from "./remote.ts";

const Settings = v.object({
  url: v.string(),
  /** Where the provider is that another process offers; none: simulated sandboxes in a process of their own. */
  provider: v.optional(v.string()),
  stateDir: v.optional(v.string()),
  credentials: v.object({ jwt: v.string(), seed: v.string() }),
  keys: v.string(),
  limits: v.record(v.string(), v.number()),
});
export type ProcessSettings = v.InferInput<typeof Settings>;

export interface PoolProcess {
  readonly pid: number;
  /** Whether it has ended, and with what status. */
  readonly exited: Promise<number>;
  kill(signal: NodeJS.Signals): void;
  /** What it holds after a full collection. */
  memory(): Promise<Memory>;
}

const Memory = v.object({ heapBytes: v.number(), objects: v.number(), rssBytes: v.number() });
export type Memory = v.InferOutput<typeof Memory>;

/** Resolves when it is ready. */
export async function spawnPool(settings: ProcessSettings): Promise<PoolProcess> {
  const child = Bun.spawn([process.execPath, import.meta.path], {
    env: { ...process.env, POOL_SETTINGS: JSON.stringify(settings) },
    stdout: "pipe",
    stderr: "inherit",
  });
  const lines = linesOf(child.stdout);
  if ((await lines.next()).value !== "READY")
    throw new Error(`the pool ended before it was ready, with status ${await child.exited}`);
  return {
    pid: child.pid,
    exited: child.exited,
    kill: (signal) => child.kill(signal),
    async memory() {
      child.kill("SIGUSR2");
      return v.parse(Memory, JSON.parse((await lines.next()).value ?? "null"));
    },
  };
}

async function* linesOf(stream: ReadableStream<Uint8Array>): AsyncGenerator<string, undefined> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of stream) {
    const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
    rest = lines.pop() ?? "";
    yield* lines;
  }
  return undefined;
}

async function tellMemory(): Promise<void> {
  // What was just let go of is there no more after the second.
  Bun.gc(true);
  await Bun.sleep(50);
  Bun.gc(true);
  const { heapSize, objectCount } = heapStats();
  const memory: Memory = { heapBytes: heapSize, objects: objectCount, rssBytes: process.memoryUsage.rss() };
  console.log(JSON.stringify(memory));
}

async function main(): Promise<void> {
  const settings = v.parse(Settings, JSON.parse(process.env.POOL_SETTINGS ?? ""));
  const { url, credentials, keys, limits } = settings;
  const log = pino({ level: "error" }, pino.destination(2));
  const link = await connect({ urls: [url], credentials, patient: true });
  const pool = await startPool({
    link,
    store: await openRecords(link, log),
    minter: KeyRing.parse(keys),
    providers: [
      settings.provider === undefined
        ? await createSimulatedProvider({ hosts: 1, stateDir: settings.stateDir })
        : remoteProvider("double", settings.provider),
    ],
    daemonUrls: [url],
    limits,
    log,
  });
  process.on("SIGUSR2", () => void tellMemory());
  process.once("SIGTERM", () => void pool.close().then(() => process.exit(0)));
  console.log("READY");
  const error = await pool.failed;
  // Synchronously, as pino's destination may not be before the exit.
  console.error(`pool ${process.pid} may not go on: ${error.message}`);
  process.exit(1);
}

if (import.meta.main) await main();
