// A command's answer frames: from bytes, and how they fit together.
import * as v from "valibot";
import {
  ChunkFrame,
  check,
  decode,
  EndFrame,
  type Frame,
  StartedFrame,
  throwIfError,
} from "../../../broker/contract/index.ts";

const CommandFrame = v.variant("type", [ChunkFrame, StartedFrame, EndFrame]);

/** Throws the error that the answer carries, InvalidRequestError where it is no frame. */
export function parseFrame(body: Uint8Array): Frame {
  const value = decode(body);
  throwIfError(value);
  return check(CommandFrame, value);
}

/** How far each stream has come: what was received, and whether it fits. Pure but for its own counters. */
export class Progress {
  /** Offset behind the last byte received. */
  readonly next = { stdout: 0, stderr: 0 };
  /** Bytes received. */
  readonly got = { stdout: 0, stderr: 0 };
  readonly #gapsAreLoss: boolean;

  /** With `keep: "tail"` what is left out stands before what is sent, so a gap is no loss. */
  constructor(gapsAreLoss: boolean, from: { stdout?: number; stderr?: number } = {}) {
    this.#gapsAreLoss = gapsAreLoss;
    this.next.stdout = from.stdout ?? 0;
    this.next.stderr = from.stderr ?? 0;
    this.#from = { ...this.next };
  }
  readonly #from: { stdout: number; stderr: number };

  /** The new bytes of a chunk; "gap" where bytes before it were lost on the way. */
  take(frame: ChunkFrame): Uint8Array | "gap" {
    if (frame.stream === "data") return new Uint8Array(0);
    const next = this.next[frame.stream];
    if (frame.offset > next && this.#gapsAreLoss) return "gap";
    const known = Math.max(0, next - frame.offset);
    const fresh = known === 0 ? frame.data : frame.data.subarray(Math.min(known, frame.data.length));
    if (fresh.length > 0) {
      this.next[frame.stream] = Math.max(next, frame.offset + frame.data.length);
      this.got[frame.stream] += fresh.length;
    }
    return fresh;
  }

  /** Whether, with the end frame's own output, all is there that the totals speak of. */
  complete(frame: EndFrame): boolean {
    return (["stdout", "stderr"] as const).every((stream) => {
      const { total_bytes, dropped_bytes } = frame.totals[stream];
      const kept = total_bytes - dropped_bytes - (this.#gapsAreLoss ? this.#from[stream] : 0);
      return this.got[stream] + (frame[stream]?.length ?? 0) >= kept;
    });
  }
}
