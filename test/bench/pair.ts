// The floor under streams, files and pings: what a pair of two programs moves by NATS publish and subscribe, in messages of
// the wire's greatest chunk, and how soon one answers the other; on a server of its own with the same kind of credentials.
import { MAX_CHUNK_BYTES } from "../../broker/contract/index.ts";
import { connect } from "../../broker/link/connect.ts";
import { endingWithUs } from "../../broker/server/ending.ts";
import { testServer } from "../../broker/server/testing.ts";
import { lines } from "./lines.ts";
import type { PathPids } from "./usage.ts";

const SANDBOX = "sb-floor";
const SUBJECT = `rep.v1.acme.${SANDBOX}.ann.floor.1`;
const PING_SUBJECT = `sbx.v1.acme.${SANDBOX}.ping`;
const PING_BYTES = 90;
const PING_TIMEOUT_MS = 10_000;
/** Published ahead of what the server has taken: as much as a daemon has in flight. */
const IN_FLIGHT = (16 * 1024 * 1024) / MAX_CHUNK_BYTES;

export interface Pair extends AsyncDisposable {
  /** The publisher stands for the daemon. */
  readonly pids: PathPids;
  /** Moves so many bytes; answers MB/s (10^6), from the order to the last message. */
  move(bytes: number): Promise<number>;
  /** One request of a ping's size, and its answer: the link and the server, and nothing behind them. */
  ping(): Promise<unknown>;
}

export async function natsPair(): Promise<Pair> {
  const server = await testServer();
  const credentials = JSON.stringify(server.sandboxCredentials("acme", SANDBOX));
  const child = Bun.spawn(endingWithUs([process.execPath, import.meta.path, server.url]), {
    env: { ...process.env, PAIR_CREDENTIALS: credentials },
    stdin: "pipe",
    stdout: "pipe",
    stderr: "inherit",
  });
  const link = await server.user("acme", "ann");
  let left = 0;
  let done: (() => void) | undefined;
  link.subscribe(SUBJECT, ({ data }) => {
    left -= data.length;
    if (left <= 0) done?.();
  });
  await link.flush();
  const said = lines(child.stdout);
  if ((await said.next()).value !== "ready") throw new Error("the publisher did not start");
  const body = new Uint8Array(PING_BYTES);
  return {
    ping: () => link.request(SANDBOX, PING_SUBJECT, body, { timeoutMs: PING_TIMEOUT_MS }),
    pids: { client: process.pid, server: server.server.pid, daemon: child.pid, relay: undefined },
    async move(bytes) {
      const count = Math.ceil(bytes / MAX_CHUNK_BYTES);
      left = count * MAX_CHUNK_BYTES;
      const arrived = new Promise<void>((resolve) => {
        done = resolve;
      });
      const began = performance.now();
      child.stdin.write(`${count}\n`);
      child.stdin.flush();
      await arrived;
      return (count * MAX_CHUNK_BYTES) / (performance.now() - began) / 1000;
    },
    async [Symbol.asyncDispose]() {
      child.kill();
      await child.exited;
      await server.close();
    },
  };
}

async function publish(url: string): Promise<void> {
  const link = await connect({ urls: [url], credentials: JSON.parse(process.env.PAIR_CREDENTIALS ?? "") });
  link.subscribe(PING_SUBJECT, (message) => message.respond(message.data));
  await link.flush();
  const chunk = new Uint8Array(MAX_CHUNK_BYTES);
  process.stdout.write("ready\n");
  for await (const line of lines(Bun.stdin.stream())) {
    for (let left = Number(line); left > 0; left -= IN_FLIGHT) {
      for (let i = 0; i < Math.min(left, IN_FLIGHT); i++) link.publish(SUBJECT, chunk);
      await link.flush();
    }
  }
}

if (import.meta.main) await publish(process.argv[2] ?? "");
