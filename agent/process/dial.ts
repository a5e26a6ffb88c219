// How the daemon gets a connection to NATS where its sandbox has no network of its own: handed over by the provider,
// which makes it outside (pool/provider/local/relay).
import { closeSync } from "node:fs";
import { connect, type NetConnectOpts, type Socket } from "node:net";
import { dirname, join } from "node:path";
import type { Engine } from "../native/engine.ts";

/** Beside the socket that the bootstrap names, at which bytes are copied. */
const HAND_OVER_SOCKET = "dial.sock";
/** Then that one is used. */
const WITHIN_MS = 1_000;

/** What dials. It answers undefined where nothing is handed over. */
export function dialer(engine: Engine, relay: string): () => Promise<Socket | undefined> {
  const path = join(dirname(relay), HAND_OVER_SOCKET);
  return async () => {
    const received = await engine.waits.receive(path, WITHIN_MS);
    if (received === undefined) return undefined;
    // Bun adopts a descriptor so; the types know the forms of Node only.
    const socket = connect({ fd: received.fd } as unknown as NetConnectOpts);
    // The other end of it ends the connection when this is closed.
    socket.once("close", () => closeSync(received.by));
    return socket;
  };
}
