// A world of virtual sandboxes in a process of its own (host.ts), started when it is first needed.
import { spawn } from "node:child_process";
import { closeSync, mkdirSync, openSync, rmSync, writeSync } from "node:fs";
import { createConnection, type Socket } from "node:net";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { fromWire, ProviderError } from "../../../broker/contract/index.ts";
import { onAbort } from "../../../broker/link/on-abort.ts";
import type { Created, Listed, ProviderEvent } from "../provider.ts";
import type { FateSettings } from "./fate.ts";
import { type HostRequest, HostWord, readLines, sendLine } from "./lines.ts";
import type { VirtualRequest, World } from "./world.ts";

const START_MS = 15_000;
const RETRY_MS = 20;

interface Call {
  resolve(word: HostWord): void;
  reject(error: Error): void;
}

export class RemoteWorld implements World {
  readonly #path: string;
  readonly #settings: FateSettings;
  readonly #watchers = new Set<(event: ProviderEvent) => void>();
  readonly #calls = new Map<number, Call>();
  #socket: Promise<Socket> | undefined;
  #last = 0;
  #closed = false;

  /** `path` of the host's socket; its folder is made. */
  constructor(path: string, settings: FateSettings) {
    this.#path = path;
    this.#settings = settings;
  }

  async create(request: VirtualRequest, signal: AbortSignal): Promise<Created> {
    const { uid } = await this.#call({ op: "create", create: request }, signal);
    if (uid === undefined) throw new ProviderError("the host answered without a uid");
    return { uid };
  }

  async remove(sandbox: string, uid: string | undefined, signal: AbortSignal): Promise<void> {
    await this.#call({ op: "remove", sandbox, ...(uid === undefined ? {} : { uid }) }, signal);
  }

  async list(signal: AbortSignal): Promise<Listed[]> {
    const { list } = await this.#call({ op: "list" }, signal);
    return list ?? [];
  }

  async crash(sandbox: string): Promise<void> {
    await this.#call({ op: "crash", sandbox }, AbortSignal.timeout(START_MS));
  }

  watch(handle: (event: ProviderEvent) => void): () => void {
    const own = (event: ProviderEvent) => handle(event);
    this.#watchers.add(own);
    // So that what happens is heard though nothing is asked.
    this.#connected().catch(() => {});
    return () => void this.#watchers.delete(own);
  }

  async #call(request: Omit<HostRequest, "n">, signal: AbortSignal): Promise<HostWord> {
    signal.throwIfAborted();
    const socket = await this.#connected();
    const n = ++this.#last;
    const answer = new Promise<HostWord>((resolve, reject) => this.#calls.set(n, { resolve, reject }));
    const unhear = onAbort(signal, () => {
      sendLine(socket, { n, op: "abort" });
      this.#settle(n)?.reject(asError(signal.reason));
    });
    sendLine(socket, { n, ...request });
    try {
      const word = await answer;
      if (word.error === undefined) return word;
      const { code, message, retryable, reason } = word.error;
      throw fromWire({ code, message, retryable, ...(reason === undefined ? {} : { reason }) });
    } finally {
      unhear();
    }
  }

  #settle(n: number): Call | undefined {
    const call = this.#calls.get(n);
    this.#calls.delete(n);
    return call;
  }

  #connected(): Promise<Socket> {
    if (this.#closed) return Promise.reject(new ProviderError("the provider was closed"));
    this.#socket ??= this.#open();
    this.#socket.catch(() => {
      this.#socket = undefined;
    });
    return this.#socket;
  }

  async #open(): Promise<Socket> {
    const deadline = performance.now() + START_MS;
    let started = false;
    for (;;) {
      const socket = await dial(this.#path);
      if (socket !== undefined) return this.#attend(socket);
      if (performance.now() > deadline) throw new ProviderError(`no host answers at ${this.#path}`);
      if (!started) {
        started = true;
        startHost(this.#path, this.#settings);
      }
      await new Promise((go) => setTimeout(go, RETRY_MS));
    }
  }

  #attend(socket: Socket): Socket {
    if (this.#closed) socket.destroy();
    readLines(socket, (value) => {
      const word = v.parse(HostWord, value);
      const { n, event } = word;
      if (event !== undefined) for (const handle of this.#watchers) handle(event);
      if (n !== undefined) this.#settle(n)?.resolve(word);
    });
    socket.on("close", () => {
      this.#socket = undefined;
      for (const n of [...this.#calls.keys()]) this.#settle(n)?.reject(hostLost());
      // Its sandboxes are gone with it: `list` says so. A new one is heard as the old one was.
      if (!this.#closed && this.#watchers.size > 0) this.#connected().catch(() => {});
    });
    return socket;
  }

  /** The host and its sandboxes live on. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#watchers.clear();
    const socket = await this.#socket?.catch(() => undefined);
    if (socket === undefined || socket.destroyed) return;
    const closed = new Promise<void>((resolve) => socket.once("close", () => resolve()));
    socket.destroy();
    await closed;
  }
}

const hostLost = (): ProviderError => new ProviderError("the host of the virtual sandboxes is gone");
const asError = (reason: unknown): Error => (reason instanceof Error ? reason : new Error(String(reason)));

/** Undefined where nobody listens. */
function dial(path: string): Promise<Socket | undefined> {
  return new Promise((resolve) => {
    const socket = createConnection(path);
    socket.once("connect", () => {
      socket.removeAllListeners("error");
      socket.on("error", () => {});
      resolve(socket);
    });
    socket.once("error", () => resolve(undefined));
  });
}

/** In a session of its own: it outlives the pool. Its pid stands beside its socket. */
function startHost(path: string, settings: FateSettings): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  rmSync(path, { force: true });
  const log = openSync(`${path}.log`, "a", 0o600);
  const host = spawn(
    process.execPath,
    [join(import.meta.dirname, "host.ts"), path, JSON.stringify(settings)],
    {
      detached: true,
      stdio: ["ignore", log, log],
    },
  );
  closeSync(log);
  const pid = openSync(`${path}.pid`, "w", 0o600);
  writeSync(pid, `${host.pid}\n`);
  closeSync(pid);
  host.unref();
}
