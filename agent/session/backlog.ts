// What background processes write while no command runs: kept for the next one, the newest of it. Pure.
import type { OutputStream } from "../../broker/contract/index.ts";

/** A server that a session has started must not stop for want of a reader, nor fill the daemon's memory. */
export const BACKLOG_BYTES = 256 * 1024;

export class Backlog {
  #parts: { stream: OutputStream; data: Uint8Array }[] = [];
  #bytes = 0;
  #dropped = 0;

  add(stream: OutputStream, data: Uint8Array): void {
    this.#parts.push({ stream, data });
    this.#bytes += data.length;
    while (this.#bytes > BACKLOG_BYTES) {
      const oldest = this.#parts.shift();
      if (oldest === undefined) break;
      this.#bytes -= oldest.data.length;
      this.#dropped += oldest.data.length;
    }
  }

  /** Gives and forgets all; where something was dropped, the first line on stderr says so. */
  take(): { stream: OutputStream; data: Uint8Array }[] {
    const parts = this.#parts;
    if (this.#dropped > 0) {
      const text = `sandmesh: ${this.#dropped} bytes of background output before this were dropped\n`;
      parts.unshift({ stream: "stderr", data: Buffer.from(text) });
    }
    this.#parts = [];
    this.#bytes = 0;
    this.#dropped = 0;
    return parts;
  }
}
