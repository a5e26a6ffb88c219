// Whether a sandbox is still ours: the one place where its loss is noted, and from which all that wait for it learn.
import type { SandmeshError } from "../../../broker/contract/index.ts";

export class Lifeline {
  #error: SandmeshError | undefined;
  readonly #waiting = new Set<(error: SandmeshError) => void>();

  /** Why it is lost; undefined while it is ours. */
  get error(): SandmeshError | undefined {
    return this.#error;
  }

  throwIfLost(): void {
    if (this.#error !== undefined) throw this.#error;
  }

  /** The first reason stays. */
  fail(error: SandmeshError): void {
    if (this.#error !== undefined) return;
    this.#error = error;
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const tell of waiting) tell(error);
  }

  /** Calls `tell`, which must not throw, once, at the loss (not where it is lost already). Returns what takes it back. */
  onLost(tell: (error: SandmeshError) => void): () => void {
    this.#waiting.add(tell);
    return () => this.#waiting.delete(tell);
  }
}
