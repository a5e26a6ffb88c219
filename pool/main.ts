// The pool as a process: `bun pool/main.ts --config FILE`. SIGTERM and SIGINT stop it and leave the sandboxes as they
// are, for the pool that starts next; nothing is released.
import { parseArgs } from "node:util";
import pino from "pino";
import { InvalidRequestError, toSandmeshError } from "../broker/contract/index.ts";
import { readBounded } from "../broker/credentials/bounded-file.ts";
import { lastReadable, parseCreds } from "../broker/credentials/index.ts";
import { connect } from "../broker/link/connect.ts";
import { KeyRing } from "../broker/server/index.ts";
import { readPoolConfig } from "./config.ts";
import { meteredProvider, meteredRecords } from "./http/metered.ts";
import { PoolMetrics } from "./http/metrics.ts";
import { serveHttp } from "./http/server.ts";
import { makeProvider } from "./providers.ts";
import { openRecords } from "./records/jetstream.ts";
import { type Pool, startPool } from "./service/pool.ts";

/** How long the first connection is tried: the server may start beside us. */
const CONNECT_MS = 30_000;
/** What is ended while it starts is given so long to have started. */
const STARTING_MS = 5_000;
/** Exit statuses: 2 for settings that cannot be, 1 for everything that another start may cure. */
const EXIT_FAILED = 1;
const EXIT_CONFIG = 2;

async function main(): Promise<void> {
  const { values } = parseArgs({ options: { config: { type: "string" } } });
  if (values.config === undefined)
    throw new InvalidRequestError("usage: pool/main.ts --config FILE", { field: "config" });
  const config = readPoolConfig(values.config);
  const log = pino({ name: config.name, level: config.logLevel });
  const ca = config.caFile === undefined ? undefined : readBounded(config.caFile, "caFile");
  const minter = KeyRing.parse(readBounded(config.keysFile, "keysFile"));
  const metrics = new PoolMetrics();
  let pool: Pool | undefined;
  // From the first moment, so that a start that takes long is seen as one.
  const http =
    config.httpListen === undefined
      ? undefined
      : serveHttp({
          listen: config.httpListen,
          metrics,
          notReady: () => (pool === undefined ? "it is starting" : pool.standing().notReady),
        });
  if (http !== undefined) log.info({ url: http.url }, "serving health and metrics");
  const providers = await Promise.all(
    config.providers.map(async (entry) => meteredProvider(await makeProvider(entry, log), metrics)),
  );
  const link = await connect({
    urls: config.urls,
    // Read anew at each connect, so that a rotated file takes effect.
    credentials: lastReadable(() => parseCreds(readBounded(config.credentialsFile, "credentialsFile"))),
    ...(ca === undefined ? {} : { ca }),
    name: config.name,
    connectTimeoutMs: CONNECT_MS,
    patient: true,
    onError: (error, what) => log.error({ error: String(error), what }, "link"),
  });
  const starting = startPool({
    link,
    store: meteredRecords(await openRecords(link, log, { replicas: config.recordReplicas }), metrics),
    minter,
    providers,
    weights: Object.fromEntries(config.providers.map(({ name, weight }) => [name, weight])),
    daemonUrls: config.daemonUrls ?? config.urls,
    ca,
    limits: config,
    name: config.name,
    log,
    meter: metrics,
  });
  // Whoever is answered by it may end it at once.
  const stop = (): void => {
    const end = async (): Promise<void> => {
      await (await Promise.race([starting, Bun.sleep(STARTING_MS)]))?.close();
      await http?.stop();
    };
    end().then(
      () => process.exit(0),
      (thrown: unknown) => {
        log.error({ error: String(thrown) }, "the pool did not stop in order");
        process.exit(EXIT_FAILED);
      },
    );
  };
  process.once("SIGTERM", stop);
  process.once("SIGINT", stop);
  const running = await starting;
  pool = running;
  metrics.watch(running, providers);
  const error = await running.failed;
  log.fatal({ error: error.message }, "the pool may not go on");
  process.exit(EXIT_FAILED);
}

if (import.meta.main) {
  main().catch((thrown: unknown) => {
    const error = toSandmeshError(thrown);
    console.error(`pool: ${error.message}`);
    process.exit(error.code === "invalid_request" ? EXIT_CONFIG : EXIT_FAILED);
  });
}
