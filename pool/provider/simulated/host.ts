// `bun host.ts SOCKET SETTINGS`: a process that hosts virtual sandboxes, so that they and the pool share no event loop,
// and that they live on while the pool restarts. It ends when it has none and nobody is connected.
import { rmSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import * as v from "valibot";
import { CanceledError, InvalidRequestError, toSandmeshError } from "../../../broker/contract/index.ts";
import { FateSettings } from "./fate.ts";
import { HostRequest, type HostWord, readLines, sendLine } from "./lines.ts";
import { LocalWorld } from "./world.ts";

/** Without sandboxes and without a client. */
const IDLE_MS = 5_000;

/** Serves a world on a unix socket until it is idle. */
export class Host {
  readonly #world: LocalWorld;
  readonly #server: Server;
  readonly #clients = new Set<Socket>();
  readonly #idle: () => void;
  #timer: ReturnType<typeof setInterval> | undefined;
  #idleSince: number | undefined;

  constructor(settings: FateSettings, path: string, idle: () => void) {
    this.#world = new LocalWorld(settings);
    this.#idle = idle;
    this.#server = createServer((socket) => this.#serve(socket));
    this.#server.on("error", idle);
    this.#server.listen(path);
    this.#timer = setInterval(() => this.#look(), 500);
  }

  #look(): void {
    const idle = this.#world.size === 0 && this.#clients.size === 0;
    this.#idleSince = idle ? (this.#idleSince ?? performance.now()) : undefined;
    if (this.#idleSince === undefined || performance.now() - this.#idleSince < IDLE_MS) return;
    clearInterval(this.#timer);
    this.#idle();
  }

  #serve(socket: Socket): void {
    this.#clients.add(socket);
    const calls = new Map<number, AbortController>();
    const unwatch = this.#world.watch((event) => sendLine(socket, { event }));
    socket.on("error", () => {});
    socket.on("close", () => {
      unwatch();
      this.#clients.delete(socket);
      for (const call of calls.values()) call.abort(new CanceledError("the caller is gone"));
    });
    readLines(socket, (value) => {
      const request = v.parse(HostRequest, value);
      if (request.op === "abort") {
        calls.get(request.n)?.abort(new CanceledError("the call was aborted"));
        return;
      }
      const call = new AbortController();
      calls.set(request.n, call);
      this.#answer(request, call.signal).then((word) => {
        calls.delete(request.n);
        sendLine(socket, word);
      });
    });
  }

  async #answer(request: HostRequest, signal: AbortSignal): Promise<HostWord> {
    const { n } = request;
    try {
      return { n, ...(await this.#do(request, signal)) };
    } catch (thrown) {
      return { n, error: { ...toSandmeshError(thrown).toWire() } };
    }
  }

  async #do(
    { op, sandbox = "", uid, create }: HostRequest,
    signal: AbortSignal,
  ): Promise<Omit<HostWord, "n">> {
    switch (op) {
      case "create":
        if (create === undefined) throw new InvalidRequestError("create is missing", { field: "create" });
        return this.#world.create(create, signal);
      case "remove":
        await this.#world.remove(sandbox, uid);
        return {};
      case "list":
        return { list: await this.#world.list() };
      case "crash":
        await this.#world.crash(sandbox);
        return {};
      case "abort":
        return {};
    }
  }
}

if (import.meta.main) {
  const [path = "", settings = "{}"] = process.argv.slice(2);
  const end = () => {
    rmSync(path, { force: true });
    process.exit(0);
  };
  process.on("SIGTERM", end);
  new Host(v.parse(FateSettings, JSON.parse(settings)), path, end);
}
