// The relay's own process: unix sockets, one a sandbox, that lead to the one NATS address that the pool names.
//   bun relay-process.ts <relay folder> <host> <port> <state folder>
// It outlives the pool, so that sandboxes keep their connection while a pool restarts, and ends by itself when for a
// minute neither a pool nor a sandbox was connected. No streams, no copies beside what the kernel did not take.
import { chmodSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import type { Socket, UnixSocketListener } from "bun";
import { ID_PATTERN } from "../../../../broker/contract/index.ts";

/** A daemon needs one, and a second for a moment; more would only crowd out the neighbours. */
const MAX_CONNECTIONS = 8;
const IDLE_EXIT_MS = 60_000;
export const CONTROL_SOCKET = "control.sock";
export const SANDBOX_SOCKET = "nats.sock";

interface End {
  peer: Socket<End> | undefined;
  /** What the peer's kernel buffer did not take yet; its sender is paused meanwhile. */
  pending: Uint8Array[];
  ended: boolean;
  closed: () => void;
}

/** Sends to `to`, pausing `from` while `to` takes no more. */
function forward(from: Socket<End>, to: Socket<End>, data: Uint8Array): void {
  const written = to.data.pending.length > 0 ? 0 : Math.max(0, to.write(data));
  if (written === data.length) return;
  // A copy: the buffer is the runtime's again after this call.
  to.data.pending.push(data.slice(written));
  from.pause();
}

function drain(to: Socket<End>): void {
  const { pending, peer, ended } = to.data;
  for (let first = pending[0]; first !== undefined; first = pending[0]) {
    const written = Math.max(0, to.write(first));
    if (written < first.length) {
      pending[0] = first.subarray(written);
      return;
    }
    pending.shift();
  }
  if (ended) to.end();
  else peer?.resume();
}

/** One side is over: the other ends when it has taken what was sent. */
function finish(one: Socket<End>): void {
  one.data.closed();
  const { peer } = one.data;
  one.data.peer = undefined;
  if (peer === undefined) return;
  peer.data.peer = undefined;
  if (peer.data.pending.length === 0) peer.end();
  else peer.data.ended = true;
}

const handlers = {
  data(socket: Socket<End>, data: Uint8Array) {
    const { peer } = socket.data;
    if (peer === undefined) return;
    forward(socket, peer, data);
  },
  drain,
  close: finish,
  end: finish,
  error: finish,
};

class Relay {
  readonly #listeners = new Map<string, UnixSocketListener<End>>();
  #open = 0;
  #idle: Timer | undefined;

  #host: string;
  #port: number;

  constructor(host: string, port: number) {
    this.#host = host;
    this.#port = port;
    for (const name of readdirSync(".")) if (ID_PATTERN.test(name)) this.add(name);
    this.#watchIdle();
  }

  /** For connections from now on. */
  leadTo(host: string, port: number): void {
    this.#host = host;
    this.#port = port;
  }

  add(sandbox: string): void {
    if (!ID_PATTERN.test(sandbox) || this.#listeners.has(sandbox)) return;
    const path = `${sandbox}/${SANDBOX_SOCKET}`;
    mkdirSync(sandbox, { recursive: true, mode: 0o755 });
    rmSync(path, { force: true });
    let connections = 0;
    const listener = Bun.listen<End>({
      unix: path,
      socket: {
        ...handlers,
        open: (socket) => {
          let counted = true;
          connections += 1;
          this.opened();
          socket.data = {
            peer: undefined,
            pending: [],
            ended: false,
            closed: () => {
              if (!counted) return;
              counted = false;
              connections -= 1;
              this.closed();
            },
          };
          if (connections > MAX_CONNECTIONS) socket.end();
          else this.#connect(socket);
        },
      },
    });
    chmodSync(path, 0o666);
    this.#listeners.set(sandbox, listener);
  }

  remove(sandbox: string): void {
    this.#listeners.get(sandbox)?.stop(true);
    this.#listeners.delete(sandbox);
    if (ID_PATTERN.test(sandbox)) rmSync(sandbox, { recursive: true, force: true });
  }

  #connect(client: Socket<End>): void {
    client.pause();
    Bun.connect<End>({
      hostname: this.#host,
      port: this.#port,
      data: { peer: client, pending: [], ended: false, closed: () => undefined },
      socket: {
        ...handlers,
        open(server) {
          server.setNoDelay(true);
          if (client.readyState <= 0) {
            server.end();
            return;
          }
          client.data.peer = server;
          client.resume();
        },
        connectError() {
          client.end();
        },
      },
    }).catch(() => client.end());
  }

  opened(): void {
    this.#open += 1;
    clearTimeout(this.#idle);
  }

  closed(): void {
    this.#open -= 1;
    this.#watchIdle();
  }

  #watchIdle(): void {
    clearTimeout(this.#idle);
    if (this.#open === 0) this.#idle = setTimeout(() => process.exit(0), IDLE_EXIT_MS);
  }
}

/** The pool's connection: "nats <host> <port>", "add <id>", "remove <id>" and "end", a line each, each answered by the
 * same line. Only the mesh's own user can open it. */
function serveControl(relay: Relay): void {
  rmSync(CONTROL_SOCKET, { force: true });
  Bun.listen<{ rest: string }>({
    unix: CONTROL_SOCKET,
    socket: {
      open(socket) {
        socket.data = { rest: "" };
        relay.opened();
      },
      close: () => relay.closed(),
      data(socket, data) {
        const lines = (socket.data.rest + data.toString()).split("\n");
        socket.data.rest = lines.pop() ?? "";
        for (const line of lines) {
          const [verb, sandbox = "", port = ""] = line.split(" ");
          if (verb === "nats") relay.leadTo(sandbox, Number(port));
          if (verb === "add") relay.add(sandbox);
          if (verb === "remove") relay.remove(sandbox);
          if (verb === "end") process.exit(0);
          socket.write(`${line}\n`);
        }
      },
    },
  });
  chmodSync(CONTROL_SOCKET, 0o600);
}

if (import.meta.main) {
  const [folder = "", host = "", port = ""] = process.argv.slice(2);
  // Relative names: a unix socket's path is at most 107 bytes.
  process.chdir(folder);
  process.on("SIGINT", () => undefined);
  process.on("SIGHUP", () => undefined);
  serveControl(new Relay(host, Number(port)));
  process.stdout.write("ready\n");
}
