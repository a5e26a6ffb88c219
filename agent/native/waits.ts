// What the engine's thread waits for, but for commands: the end of a process, and that a descriptor has something to read.
import { ptr } from "bun:ffi";
import { closeSync } from "node:fs";
import type { Library } from "./library.ts";

/** A socket that is read by the engine. */
export interface Intake {
  /** Reads at least `least` bytes to `into`: how many, -1 where it is at its end or has failed, 0 where they are not there
   * yet. Then `came` is told how many, and until then `into` must be kept, and not looked at. */
  read(into: Uint8Array, least: number): number;
  close(): void;
}

/** Where the engine cannot look whether there is something to read, ms between two looks. */
const LOOK_MS = 100;

export class Waits {
  readonly #native: Library;
  readonly #watchers = new Map<number, () => void>();
  readonly #intakes = new Map<number, (length: number) => void>();

  constructor(native: Library) {
    this.#native = native;
  }

  /** Calls `gone` once when that process has ended; false where it is not there. */
  watch(pid: number, gone: () => void): boolean {
    const handle = Number(this.#native.engine_watch(pid));
    if (handle < 0) return false;
    this.#watchers.set(handle, gone);
    return true;
  }

  /** The descriptor that whoever listens at the unix socket `path` hands over within that time, and the connection that
   * it came by; both are the caller's. Undefined where there is none to be had. */
  async receive(path: string, withinMs: number): Promise<{ fd: number; by: number } | undefined> {
    const by = this.#native.engine_dial(ptr(Buffer.from(`${path}\0`)));
    if (by < 0) return undefined;
    await this.#readable(by, withinMs);
    const fd = this.#native.engine_receive(by);
    if (fd >= 0) return { fd, by };
    closeSync(by);
    return undefined;
  }

  #readable(fd: number, withinMs: number): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        clearTimeout(timer);
        end();
        resolve();
      };
      const timer = setTimeout(done, withinMs);
      const end = this.onReadable(fd, done);
    });
  }

  /** Calls `then` once when that descriptor, which stays the caller's, has something to read; what is returned takes it
   * back. */
  onReadable(fd: number, then: () => void): () => void {
    const handle = Number(this.#native.engine_watch_readable(fd));
    if (handle < 0) {
      // No descriptor or memory is left for it: whoever reads looks for himself.
      const timer = setTimeout(then, LOOK_MS);
      return () => clearTimeout(timer);
    }
    this.#watchers.set(handle, then);
    return () => {
      if (this.#watchers.delete(handle)) this.#native.engine_unwatch(handle);
    };
  }

  /** Reads the socket of that descriptor, which nobody else may read until `close`; undefined where that cannot be. `came`
   * is called where a read was to come later. */
  intake(fd: number, came: (length: number) => void): Intake | undefined {
    const native = this.#native;
    const handle = Number(native.engine_intake(fd));
    if (handle < 0) return undefined;
    this.#intakes.set(handle, came);
    return {
      read: (into, least) => native.engine_take_in(handle, ptr(into), into.length, least),
      close: () => {
        if (this.#intakes.delete(handle)) native.engine_unwatch(handle);
      },
    };
  }

  /** The engine's word: what was waited for is there, or has ended. */
  gone(handle: number): void {
    const gone = this.#watchers.get(handle);
    this.#watchers.delete(handle);
    gone?.();
  }

  /** The engine's word: so much was read. */
  came(handle: number, length: number): void {
    this.#intakes.get(handle)?.(length);
  }
}
