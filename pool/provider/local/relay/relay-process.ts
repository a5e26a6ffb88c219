// The relay's own process: unix sockets that lead to the one NATS address that the pool names. Two a sandbox: at one the
// daemon gets a connection handed over, the other one copies bytes both ways, for whoever else speaks NATS there.
//   bun relay-process.ts <relay folder> <host> <port> <state folder>
// It outlives the pool, so that sandboxes keep their connection while a pool restarts, and ends by itself when for some
// seconds neither a pool nor a sandbox was connected; a pool that finds sandboxes starts another. No streams, no copies
// beside what the kernel did not take.
import { chmodSync, mkdirSync, readdirSync, rmSync } from "node:fs";
import type { Socket, SocketHandler, UnixSocketListener } from "bun";
import { ID_PATTERN } from "../../../../broker/contract/index.ts";
import { cut, give, isFirstProcess, resolveTarget, socketTo, type Target } from "./hand-over.ts";

/** A daemon needs one, and a second for a moment; more would only crowd out the neighbours. */
const MAX_CONNECTIONS = 8;
/** Of a mesh that was killed nothing shall be left 10 s after the leases: the last daemon ends 5 s after its own. */
const IDLE_EXIT_MS = 4_000;
export const CONTROL_SOCKET = "control.sock";
export const SANDBOX_SOCKET = "nats.sock";
/** Beside it. */
export const HAND_OVER_SOCKET = "dial.sock";

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

/** A connection that was handed over lives as long as the unix connection that it came by. */
interface HandedOver {
  fd: number | undefined;
  closed: () => void;
}

function letGo({ data }: Socket<HandedOver>): void {
  if (data.fd !== undefined) cut(data.fd);
  data.fd = undefined;
  data.closed();
}

/** The types do not know of it. */
const descriptorOf = (socket: object): number =>
  "fd" in socket && typeof socket.fd === "number" ? socket.fd : -1;

interface Listeners {
  bytes: UnixSocketListener<End>;
  handOver: UnixSocketListener<HandedOver>;
}

class Relay {
  readonly #listeners = new Map<string, Listeners>();
  #open = 0;
  #idle: Timer | undefined;

  #host = "";
  #port = 0;
  #target: Target | undefined;

  constructor(host: string, port: number) {
    this.leadTo(host, port);
    for (const name of readdirSync(".")) if (ID_PATTERN.test(name)) this.add(name);
    this.#watchIdle();
  }

  /** For connections from now on. */
  leadTo(host: string, port: number): void {
    this.#host = host;
    this.#port = port;
    this.#target = undefined;
    resolveTarget(host, port).then(
      (target) => {
        if (this.#host === host && this.#port === port) this.#target = target;
      },
      // Nothing is handed over then.
      () => undefined,
    );
  }

  add(sandbox: string): void {
    if (!ID_PATTERN.test(sandbox) || this.#listeners.has(sandbox)) return;
    mkdirSync(sandbox, { recursive: true, mode: 0o755 });
    let connections = 0;
    /** Counts a connection; answers what is to be called at its end. */
    const count = (): (() => void) => {
      let counted = true;
      connections += 1;
      this.opened();
      return () => {
        if (!counted) return;
        counted = false;
        connections -= 1;
        this.closed();
      };
    };
    const bytes = listen<End>(`${sandbox}/${SANDBOX_SOCKET}`, {
      ...handlers,
      open: (socket) => {
        socket.data = { peer: undefined, pending: [], ended: false, closed: count() };
        if (connections > MAX_CONNECTIONS) socket.end();
        else this.#connect(socket);
      },
    });
    const handOver = listen<HandedOver>(`${sandbox}/${HAND_OVER_SOCKET}`, {
      open: (socket) => {
        socket.data = { fd: undefined, closed: count() };
        if (connections > MAX_CONNECTIONS || !this.#handOver(socket)) socket.end();
      },
      data() {},
      end: letGo,
      close: letGo,
      error: letGo,
    });
    this.#listeners.set(sandbox, { bytes, handOver });
  }

  /** False where this is not for them, or cannot be done. */
  #handOver(socket: Socket<HandedOver>): boolean {
    const to = descriptorOf(socket);
    if (this.#target === undefined || !isFirstProcess(to)) return false;
    socket.data.fd = socketTo(this.#target);
    return socket.data.fd !== undefined && give(to, socket.data.fd);
  }

  remove(sandbox: string): void {
    const listeners = this.#listeners.get(sandbox);
    listeners?.bytes.stop(true);
    listeners?.handOver.stop(true);
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

/** Anyone in the sandbox may connect. */
function listen<T>(path: string, socket: SocketHandler<T>): UnixSocketListener<T> {
  rmSync(path, { force: true });
  const listener = Bun.listen<T>({ unix: path, socket });
  chmodSync(path, 0o666);
  return listener;
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
