// For tests: a pool as a process of its own, that can be killed. Its provider is elsewhere (remote.ts).
import pino from "pino";
import * as v from "valibot";
import { connect } from "../../broker/link/connect.ts";
import { KeyRing } from "../../broker/server/index.ts";
import { openRecords } from "../records/jetstream.ts";
import { startPool } from "../service/pool.ts";
import { remoteProvider } from "./remote.ts";

const Settings = v.object({
  url: v.string(),
  provider: v.string(),
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
}

/** Resolves when it is ready. */
export async function spawnPool(settings: ProcessSettings): Promise<PoolProcess> {
  const child = Bun.spawn([process.execPath, import.meta.path], {
    env: { ...process.env, POOL_SETTINGS: JSON.stringify(settings) },
    stdout: "pipe",
    stderr: "inherit",
  });
  for await (const chunk of child.stdout) {
    if (Buffer.from(chunk).includes("READY")) {
      return { pid: child.pid, exited: child.exited, kill: (signal) => child.kill(signal) };
    }
  }
  throw new Error(`the pool ended before it was ready, with status ${await child.exited}`);
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
    providers: [remoteProvider("double", settings.provider)],
    daemonUrls: [url],
    limits,
    log,
  });
  process.once("SIGTERM", () => void pool.close().then(() => process.exit(0)));
  console.log("READY");
  const error = await pool.failed;
  // Synchronously, as pino's destination may not be before the exit.
  console.error(`pool ${process.pid} may not go on: ${error.message}`);
  process.exit(1);
}

if (import.meta.main) await main();
