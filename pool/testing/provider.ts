// For tests: a provider whose failures are on demand. Its sandboxes are daemon doubles on real connections.
import { ProviderError, QuotaExceededError, type SandboxSpec } from "../../broker/contract/index.ts";
import type { Created, CreateRequest, Listed, Provider, ProviderEvent } from "../provider/provider.ts";
import { DaemonDouble } from "./daemon.ts";

export interface Script {
  /** What `create` does: resolves at once, waits for `proceed`, or throws (`full`: over its quota, nothing made). */
  create?: "ok" | "wait" | "fail" | "full";
  /** What the sandbox does: becomes ready, or nothing. */
  boot?: "ready" | "never";
  /** How often `remove` fails first. */
  removeFailures?: number;
  /** `remove` hangs until aborted. */
  removeHangs?: boolean;
}

interface Made {
  request: CreateRequest;
  uid: string;
  daemon: DaemonDouble;
  /** Why its daemon is not there any more, as a real provider would see its process gone. */
  failed?: string;
}

export class ProviderDouble implements Provider {
  readonly name: string;
  readonly made = new Map<string, Made>();
  /** All ids ever created, also again. */
  readonly created: string[] = [];
  readonly removed: string[] = [];
  readonly refuseSpec = new Set<string>();
  script: (request: CreateRequest) => Script = () => ({});
  /** Its warnings. */
  words: string[] = [];
  listFails = false;
  /** How often it was listed. */
  listed = 0;
  readonly #scripts = new Map<string, Script>();
  readonly #failures = new Map<string, number>();
  readonly #waiting: (() => void)[] = [];
  readonly #watchers = new Set<(event: ProviderEvent) => void>();
  /** Creates under way, and the most there were. */
  creating = 0;
  mostCreating = 0;

  constructor(name = "double") {
    this.name = name;
  }

  async validate(spec: SandboxSpec): Promise<void> {
    if (this.refuseSpec.has(spec.image)) throw new ProviderError(`${spec.image} is refused`);
  }

  async create(request: CreateRequest): Promise<Created> {
    const script = this.script(request);
    this.#scripts.set(request.sandbox, script);
    this.mostCreating = Math.max(this.mostCreating, ++this.creating);
    try {
      if (script.create === "wait") await new Promise<void>((proceed) => this.#waiting.push(proceed));
      if (script.create === "fail") throw new ProviderError("the double fails", { reason: "on_demand" });
      if (script.create === "full") throw new QuotaExceededError("the double is full");
      return this.#make(request, script);
    } finally {
      this.creating--;
    }
  }

  #make(request: CreateRequest, script: Script): Created {
    this.created.push(request.sandbox);
    const known = this.made.get(request.sandbox);
    if (known !== undefined) return { uid: known.uid };
    const uid = crypto.randomUUID();
    const daemon = new DaemonDouble(request.bootstrap);
    const made: Made = { request, uid, daemon };
    this.made.set(request.sandbox, made);
    if (script.boot !== "never") void boot(made);
    return { uid };
  }

  /** Lets the creates go on that wait. */
  proceed(): void {
    for (const go of this.#waiting.splice(0)) go();
  }

  async remove(sandbox: string, _uid: string | undefined, signal: AbortSignal): Promise<void> {
    const script = this.#scripts.get(sandbox);
    if (script?.removeHangs === true) {
      await new Promise((_, reject) => signal.addEventListener("abort", () => reject(new Error("aborted"))));
    }
    const failures = this.#failures.get(sandbox) ?? 0;
    if (failures < (script?.removeFailures ?? 0)) {
      this.#failures.set(sandbox, failures + 1);
      throw new ProviderError("the double does not remove it yet");
    }
    this.removed.push(sandbox);
    const made = this.made.get(sandbox);
    this.made.delete(sandbox);
    await made?.daemon.close();
  }

  async list(): Promise<Listed[]> {
    this.listed++;
    if (this.listFails) throw new ProviderError("the double does not list");
    return [...this.made.values()].map(({ request, uid, failed }) => ({
      sandbox: request.sandbox,
      tenant: request.tenant,
      uid,
      ...(failed === undefined ? { phase: "running" } : { phase: "failed", reason: failed }),
    }));
  }

  watch(handle: (event: ProviderEvent) => void): () => void {
    this.#watchers.add(handle);
    return () => this.#watchers.delete(handle);
  }

  /** A sandbox that no pool asked for; otherwise like `like`. */
  plant(sandbox: string, like: string): void {
    const { request } = this.made.get(like) ?? { request: undefined };
    if (request === undefined) throw new Error(`there is no ${like}`);
    const daemon = new DaemonDouble(request.bootstrap);
    this.made.set(sandbox, { request: { ...request, sandbox }, uid: crypto.randomUUID(), daemon });
  }

  tell(event: ProviderEvent): void {
    for (const watcher of this.#watchers) watcher(event);
  }

  warnings(): string[] {
    return this.words;
  }

  notIsolated(): string[] {
    return ["everything"];
  }

  async close(): Promise<void> {}

  /** The test's own end: every connection is closed. */
  async end(): Promise<void> {
    this.proceed();
    await Promise.all([...this.made.values()].map(({ daemon }) => daemon.close()));
    this.made.clear();
  }
}

/** A daemon's start; that it ended before it was ready is for the provider's list to tell. */
async function boot(made: Made): Promise<void> {
  try {
    await made.daemon.enrol();
    await made.daemon.serve();
  } catch (error) {
    made.failed = String(error);
  }
}
