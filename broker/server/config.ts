// nats-server's configuration file, as text.
import type { OperatorJwts } from "./operator.ts";

/** One of several servers on this machine, which keep JetStream's records together. On loopback alone, since whoever
 * reaches a route is trusted; over machines the official chart sets clusters up, with TLS between them. */
export interface ClusterSettings {
  /** Of this server, unlike all others'. */
  name: string;
  /** Of this server, and of all: what it calls. */
  port: number;
  ports: readonly number[];
  /** HOST:PORT that it tells others to call it by; default: where it listens. */
  advertise?: string;
}

export interface ServerSettings {
  host: string;
  /** -1: one that is free. */
  port: number;
  /** JetStream's files and the ports file go below it. */
  stateDir: string;
  /** Monitoring over HTTP on loopback, on a free port (-1) or a given one; undefined: off. */
  monitorPort: number | undefined;
  tls: { certFile: string; keyFile: string } | undefined;
  jwts: OperatorJwts;
  cluster?: ClusterSettings | undefined;
}

/** Of JSON's escapes nats-server knows all but these, which a path may need; its own are by bytes. */
const forNats = (whole: string, letter: string): string =>
  ({ b: "\\x08", f: "\\x0c" })[letter] ?? whole.replace(/^\\u00/, "\\x");

/** JSON is, but for some escapes, a subset of what nats-server reads. The memory resolver holds the accounts; a change of them (a
 * revocation) is a new file and a reload. */
export function formatConfig(settings: ServerSettings): string {
  const { host, port, stateDir, monitorPort, tls, jwts, cluster } = settings;
  const config = {
    server_name: cluster?.name ?? "sandmesh",
    ...(cluster === undefined
      ? {}
      : {
          cluster: {
            name: "sandmesh",
            listen: `127.0.0.1:${cluster.port}`,
            routes: cluster.ports.map((each) => `nats://127.0.0.1:${each}`),
            ...(cluster.advertise === undefined ? {} : { advertise: cluster.advertise }),
          },
        }),
    listen: `${host.includes(":") ? `[${host}]` : host}:${port}`,
    ports_file_dir: stateDir,
    ...(monitorPort === undefined ? {} : { http: `127.0.0.1:${monitorPort}` }),
    ...(tls === undefined ? {} : { tls: { cert_file: tls.certFile, key_file: tls.keyFile, timeout: 10 } }),
    log_file: `${stateDir}/nats-server.log`,
    logfile_size_limit: 8 * 1024 * 1024,
    logfile_max_num: 2,
    jetstream: { store_dir: stateDir },
    // Sandboxes come in thousands, and all come back at once when the server was away.
    max_connections: 131072,
    authorization: { timeout: 30 },
    ping_interval: "20s",
    ping_max: 2,
    operator: jwts.operator,
    system_account: jwts.systemKey,
    resolver: "MEMORY",
    resolver_preload: { [jwts.accountKey]: jwts.account, [jwts.systemKey]: jwts.system },
  };
  return `${JSON.stringify(config, null, 2).replace(/\\(u00..|.)/g, forNats)}\n`;
}
