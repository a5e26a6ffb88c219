// Many virtual sandboxes in this process: each a daemon of its own on a NATS connection of its own.
import {
  type Bootstrap,
  ConflictError,
  ProviderError,
  toSandmeshError,
} from "../../../broker/contract/index.ts";
import { type End, type Endpoint, openEndpoint } from "../../../broker/endpoint/index.ts";
import { after } from "../../../broker/link/after.ts";
import { whenAborted } from "../../../broker/link/on-abort.ts";
import type { Created, Listed, ProviderEvent } from "../provider.ts";
import { VirtualExecutor } from "./executor.ts";
import { type Fate, type FateSettings, fateOf } from "./fate.ts";

export interface VirtualRequest {
  sandbox: string;
  tenant: string;
  bootstrap: Bootstrap;
  maxLifeMs: number;
}

/** The sandboxes of one process, here or elsewhere. */
export interface World {
  create(request: VirtualRequest, signal: AbortSignal): Promise<Created>;
  remove(sandbox: string, uid: string | undefined, signal: AbortSignal): Promise<void>;
  list(signal: AbortSignal): Promise<Listed[]>;
  watch(handle: (event: ProviderEvent) => void): () => void;
  /** Ends a daemon, as a crash would; nothing where there is none. For tests and chaos. */
  crash(sandbox: string): Promise<void>;
  /** Lets go of it; the sandboxes live on. */
  close(): Promise<void>;
}

/** What a virtual daemon may take to end its commands, none of which resists. */
const GRACE_MS = 100;

export class LocalWorld implements World {
  readonly #settings: FateSettings;
  readonly #sandboxes = new Map<string, VirtualSandbox>();
  readonly #watchers = new Set<(event: ProviderEvent) => void>();
  readonly #refusedRemoves = new Set<string>();
  #created = 0;

  constructor(settings: FateSettings) {
    this.#settings = settings;
  }

  get size(): number {
    return this.#sandboxes.size;
  }

  async create(request: VirtualRequest, signal: AbortSignal): Promise<Created> {
    signal.throwIfAborted();
    const { sandbox } = request;
    const there = this.#sandboxes.get(sandbox);
    if (there !== undefined) {
      if (there.tenant !== request.tenant) {
        throw new ConflictError(`${sandbox} is another tenant's`, { field: "sandbox", sandbox });
      }
      return { uid: there.uid };
    }
    const fate = fateOf(sandbox, this.#settings);
    if (fate.create === "fails") {
      throw new ProviderError(`simulated: ${sandbox} is not to be created`, { reason: "simulated", sandbox });
    }
    const uid = `${sandbox}.${process.pid}.${++this.#created}`;
    const made = new VirtualSandbox(request, uid, fate, (event) => this.#tell(event));
    this.#sandboxes.set(sandbox, made);
    if (fate.create === "hangs") await aborted(signal);
    return { uid };
  }

  #tell(event: ProviderEvent): void {
    for (const handle of this.#watchers) handle(event);
  }

  async remove(sandbox: string, uid: string | undefined): Promise<void> {
    const there = this.#sandboxes.get(sandbox);
    if (there === undefined || (uid !== undefined && uid !== there.uid)) return;
    if (there.fate.removeFails && !this.#refusedRemoves.has(sandbox)) {
      this.#refusedRemoves.add(sandbox);
      throw new ProviderError(`simulated: ${sandbox} is not to be removed yet`, {
        reason: "simulated",
        sandbox,
      });
    }
    await there.remove();
    this.#sandboxes.delete(sandbox);
    this.#refusedRemoves.delete(sandbox);
  }

  async list(): Promise<Listed[]> {
    return [...this.#sandboxes.values()].map((each) => each.listed());
  }

  watch(handle: (event: ProviderEvent) => void): () => void {
    const own = (event: ProviderEvent) => handle(event);
    this.#watchers.add(own);
    return () => void this.#watchers.delete(own);
  }

  async crash(sandbox: string): Promise<void> {
    await this.#sandboxes.get(sandbox)?.die("daemon_died", "the daemon was ended");
  }

  async close(): Promise<void> {
    this.#watchers.clear();
  }

  /** Removes all. They end with their process anyway. */
  async end(): Promise<void> {
    await Promise.all([...this.#sandboxes.values()].map((each) => each.remove()));
    this.#sandboxes.clear();
  }
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => {
    whenAborted(signal, () => reject(signal.reason));
  });
}

type Loss = Extract<ProviderEvent, { type: "lost" }>["reason"];

class VirtualSandbox {
  readonly tenant: string;
  readonly uid: string;
  readonly fate: Fate;
  readonly #request: VirtualRequest;
  readonly #tell: (event: ProviderEvent) => void;
  readonly #timers = new Set<() => void>();
  #phase: Listed["phase"] = "starting";
  #reason: string | undefined;
  readonly #stop = new AbortController();
  #opening: Promise<void> | undefined;
  #endpoint: Endpoint | undefined;
  #removing: Promise<void> | undefined;

  constructor(request: VirtualRequest, uid: string, fate: Fate, tell: (event: ProviderEvent) => void) {
    this.tenant = request.tenant;
    this.uid = uid;
    this.fate = fate;
    this.#request = request;
    this.#tell = tell;
    this.#after(fate.bootMs, () => this.#start());
    this.#after(request.maxLifeMs, () => void this.die("deleted", "its longest life is over"));
  }

  #after(ms: number, act: () => void): void {
    const clear = after(ms, () => {
      this.#timers.delete(clear);
      act();
    });
    this.#timers.add(clear);
  }

  #clearTimers(): void {
    for (const clear of this.#timers) clear();
    this.#timers.clear();
  }

  get #gone(): boolean {
    return this.#removing !== undefined || this.#phase === "failed";
  }

  #start(): void {
    this.#phase = "running";
    this.#tell({ type: "running", sandbox: this.#request.sandbox, uid: this.uid });
    const { trouble, troubleMs } = this.fate;
    if (trouble === "never_ready") return;
    if (trouble === "boot_fails") {
      this.#failed("exited", "simulated: the daemon exited before it was ready");
      return;
    }
    this.#opening = this.#open();
    if (trouble === "dies") this.#after(troubleMs, () => void this.die("daemon_died", "simulated"));
    if (trouble === "freezes") this.#after(troubleMs, () => this.#endpoint?.freeze());
  }

  async #open(): Promise<void> {
    const { bootstrap } = this.#request;
    try {
      const endpoint = await openEndpoint({
        bootstrap,
        executor: new VirtualExecutor(bootstrap.env, bootstrap.cwd),
        startedAtMs: performance.now(),
        graceMs: GRACE_MS,
        signal: this.#stop.signal,
        onEnd: (end) => this.#ended(end),
      });
      this.#endpoint = endpoint;
      if (this.#gone) await endpoint.close();
    } catch (thrown) {
      const error = toSandmeshError(thrown);
      if (!this.#gone) this.#failed("exited", `the daemon gave up: ${error.message}`);
    }
  }

  #failed(reason: string, message: string): void {
    const { sandbox } = this.#request;
    this.#over(reason);
    this.#tell({ type: "failed", sandbox, uid: this.uid, code: "boot_failed", reason, message });
  }

  #over(reason: string): void {
    this.#phase = "failed";
    this.#reason = reason;
    this.#clearTimers();
  }

  /** The endpoint has ended by itself: by the pool's word, or for want of one. */
  #ended(end: End): void {
    if (this.#gone) return;
    this.#over(end.why);
    if (end.why !== "released") this.#lost("daemon_died", `the daemon ended: ${end.reason}`);
  }

  #lost(reason: Loss, message: string): void {
    this.#tell({ type: "lost", sandbox: this.#request.sandbox, uid: this.uid, reason, message });
  }

  async die(reason: Loss, message: string): Promise<void> {
    if (this.#gone) return;
    this.#over(reason);
    this.#lost(reason, message);
    this.#stop.abort();
    await this.#endpoint?.close();
  }

  remove(): Promise<void> {
    this.#removing ??= this.#remove();
    return this.#removing;
  }

  async #remove(): Promise<void> {
    this.#clearTimers();
    // One that is just connecting is not gone before that has come to its end.
    this.#stop.abort();
    if (this.#endpoint === undefined) await this.#opening;
    await this.#endpoint?.close();
  }

  listed(): Listed {
    const { tenant, uid } = this;
    const entry: Listed = { sandbox: this.#request.sandbox, tenant, uid, phase: this.#phase };
    return this.#reason === undefined ? entry : { ...entry, reason: this.#reason };
  }
}
