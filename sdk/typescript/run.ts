// A run: sandboxes that are renewed together and end together.
import type { SandboxView } from "../../broker/contract/index.ts";
import type { AcquireManyOptions, AcquireOptions } from "./acquire-options.ts";
import { given, onlySignal } from "./arguments.ts";
import type { EventFilter, MeshEvent } from "./events.ts";
import type { Abortable } from "./files/files.ts";
import type { Mesh } from "./mesh.ts";
import type { Sandbox } from "./sandbox.ts";
import type { Duration } from "./units.ts";

export class Run implements AsyncDisposable {
  readonly id: string;
  readonly #mesh: Mesh;
  readonly #lease: Duration | undefined;

  /** Internal: see `Mesh.run`. */
  constructor(mesh: Mesh, id: string, lease: Duration | undefined) {
    this.id = id;
    this.#mesh = mesh;
    this.#lease = lease;
  }

  /** As `Mesh.acquire`, in this run. */
  acquire(options: Omit<AcquireOptions, "run">): Promise<Sandbox> {
    return this.#mesh.acquire(this.#with(options));
  }

  /** As `Mesh.acquireMany`, in this run. */
  acquireMany(count: number, options: Omit<AcquireManyOptions, "run">): Promise<Sandbox[]> {
    return this.#mesh.acquireMany(count, this.#with(options));
  }

  #with<T extends Omit<AcquireOptions, "run">>(options: T): T & { run: string } {
    const lease = this.#lease === undefined ? {} : { lease: this.#lease };
    return { ...lease, ...given(options), run: this.id };
  }

  /** Its sandboxes, also those that other processes acquired. */
  list(options: Abortable = {}): Promise<SandboxView[]> {
    return this.#mesh.list({ ...options, run: this.id });
  }

  /** Renews it now. Not needed while this process holds sandboxes of it: they are renewed by themselves. Throws
   * NotFoundError where the pool does not know it. */
  async renew(lease?: Duration, options: Abortable = {}): Promise<void> {
    await this.#mesh.renew(this.id, lease ?? this.#lease, options);
  }

  /** As `Mesh.events`, of this run. */
  events(filter: Omit<EventFilter, "run"> = {}): AsyncGenerator<MeshEvent, void, void> {
    return this.#mesh.events({ ...given(filter, "filter"), run: this.id });
  }

  /** Ends all its sandboxes at once, also those that other processes acquired; resolves when they are gone, and
   * verified so, to how many this call ended. The signal ends the waiting; the release goes on. */
  release(options: Abortable = {}): Promise<number> {
    return this.#mesh.release({ run: this.id }, options);
  }

  /** As `release`. After the connection's own closing, which has released what this process held, it does nothing. */
  async close(options: Abortable = {}): Promise<void> {
    await this.#mesh.closeRun(this.id, onlySignal(options).signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}
