// The main thread's side of renewal: a thread with a connection of its own, so that a trainer that computes for
// minutes without a turn of its event loop loses nothing.
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import type { Settings } from "../settings.ts";
import type { Caller } from "../wire/caller.ts";
import { Keeper } from "./keeper.ts";
import type { FromThread, KeeperData, Loss, ReleaseOrder, ToKeeper } from "./protocol.ts";

/** Of the sources, which Bun runs; the package's build gives it its own name. Undefined where a bundler has made CommonJS of
 * this, which has no such address. */
function workerFile(): URL | undefined {
  const here: string | undefined = import.meta.url;
  return here === undefined ? undefined : new URL("./worker.ts", import.meta.url);
}

type Told = (message: Loss) => void;

/** From connecting until the thread begins by itself: most programs that ask once and end have ended by then. */
const AHEAD_MS = 250;

export class Renewer {
  readonly #settings: Settings;
  readonly #told: Told;
  #worker: Worker | undefined;
  #begun = false;
  /** Begins the thread ahead of the first acquire, which would pay for it (a tenth of a second of CPU) in a burst. */
  readonly #ahead: ReturnType<typeof setTimeout>;
  /** Why there is no thread, until that is told: nobody wants one before the first acquire. */
  #without: string | undefined;
  /** It is connected, too: on a loaded machine that takes longer than a short lease. */
  #threadRenews = false;
  /** Renews meanwhile, and where no thread can be had: better between two turns of the event loop than not at all. */
  readonly #inProcess: Keeper;
  readonly #runs = new Map<string, number>();

  constructor(settings: Settings, caller: Caller, told: Told) {
    this.#settings = settings;
    this.#told = told;
    this.#inProcess = new Keeper(Promise.resolve(caller), told);
    this.#ahead = setTimeout(() => this.#begin(), AHEAD_MS);
    this.#ahead.unref();
  }

  /** This connection is used for something else than acquires before the thread has begun: it may be for nothing but that, and
   * the thread, with its 20 MB, begins with the first acquire. */
  onlyWithAcquires(): void {
    clearTimeout(this.#ahead);
  }

  keep(run: string, leaseMs: number): void {
    this.#runs.set(run, leaseMs);
    this.#begin();
    this.#tellWithout();
    if (!this.#threadRenews) this.#inProcess.keep(run, leaseMs);
    this.#worker?.postMessage({ type: "keep", run, leaseMs } satisfies ToKeeper);
  }

  drop(run: string): void {
    if (!this.#runs.delete(run)) return;
    this.#inProcess.drop(run);
    this.#worker?.postMessage({ type: "drop", run } satisfies ToKeeper);
  }

  /** Blocks until the thread has released all of it, or the time is up. For the way out, where nothing can be
   * awaited any more. */
  releaseBlocking(order: ReleaseOrder): void {
    if (this.#worker === undefined) return;
    const done = new Int32Array(new SharedArrayBuffer(4));
    this.#worker.postMessage({ type: "release", done, ...order } satisfies ToKeeper);
    Atomics.wait(done, 0, 0, order.timeoutMs);
  }

  async close(): Promise<void> {
    clearTimeout(this.#ahead);
    this.#runs.clear();
    const worker = this.#worker;
    this.#worker = undefined;
    this.#inProcess.rest();
    await worker?.terminate();
  }

  #begin(): void {
    if (this.#begun) return;
    this.#begun = true;
    clearTimeout(this.#ahead);
    const file = workerFile();
    if (file === undefined) {
      this.#fallBack("this bundle is CommonJS, which cannot name its file");
      return;
    }
    if (file.protocol === "file:" && !existsSync(fileURLToPath(file))) {
      this.#fallBack(`${fileURLToPath(file)} is missing`);
      return;
    }
    const worker = this.#make(file);
    if (worker === undefined) return;
    worker.unref();
    worker.on("message", (message: FromThread) => this.#hear(worker, message));
    worker.on("error", (error) => this.#lose(worker, error instanceof Error ? error.message : String(error)));
    this.#worker = worker;
  }

  #hear(worker: Worker, message: FromThread): void {
    switch (message.type) {
      case "connected":
        this.#threadRenews = true;
        this.#inProcess.rest();
        break;
      case "unconnected":
        this.#lose(worker, message.why);
        void worker.terminate();
        break;
      default:
        this.#told(message);
    }
  }

  #lose(worker: Worker, why: string): void {
    if (this.#worker !== worker) return;
    this.#worker = undefined;
    this.#threadRenews = false;
    this.#fallBack(why);
  }

  /** Undefined where the program may have no threads, as by Node's --permission. */
  #make(file: URL): Worker | undefined {
    const data: KeeperData = { settings: this.#settings };
    try {
      // The parent's flags may mean something only to its own file (a loader, --eval).
      return new Worker(file, { workerData: data, execArgv: [], name: "sandmesh renewals" });
    } catch (error) {
      this.#fallBack(error instanceof Error ? error.message : String(error));
      return undefined;
    }
  }

  #fallBack(why: string): void {
    this.#without = why;
    if (this.#runs.size > 0) this.#tellWithout();
    for (const [run, leaseMs] of this.#runs) this.#inProcess.keep(run, leaseMs);
  }

  #tellWithout(): void {
    if (this.#without === undefined) return;
    process.emitWarning(
      `no thread for renewals (${this.#without}): a blocked event loop will lose its leases, and process.exit() leaves them to lapse`,
      "SandmeshWarning",
    );
    this.#without = undefined;
  }
}
