// The frames that a command is answered with.
import type { EndFrame, OutputStream } from "../contract/index.ts";
import type { Command } from "./command.ts";
import type { CommandResult } from "./executor.ts";

/** What one reader got of one stream, without a hole in it: what is missing stands before or behind. */
export interface Delivered {
  /** The offset that it asked from. */
  from: number;
  /** Of the first byte that it got. */
  first: number;
  /** Behind the last byte that it got. */
  upTo: number;
  /** The last of these bytes, in the end frame. */
  rest: Uint8Array;
}

export function endFrame(
  command: Command,
  incarnation: string,
  result: CommandResult,
  out: Record<OutputStream, Delivered>,
): EndFrame {
  const frame: EndFrame = {
    type: "end",
    id: command.id,
    incarnation,
    outcome: result.outcome,
    totals: {
      stdout: totalOf(command, "stdout", out.stdout),
      stderr: totalOf(command, "stderr", out.stderr),
    },
    duration_ms: result.durationMs,
  };
  if (out.stdout.rest.length > 0) frame.stdout = out.stdout.rest;
  if (out.stderr.rest.length > 0) frame.stderr = out.stderr.rest;
  if (command.pid !== undefined) frame.pid = command.pid;
  if (result.background !== undefined) frame.background = result.background;
  if (result.cpuMs !== undefined) frame.cpu_ms = result.cpuMs;
  if (result.maxRssBytes !== undefined) frame.max_rss_bytes = result.maxRssBytes;
  return frame;
}

function totalOf(command: Command, stream: OutputStream, { from, first, upTo }: Delivered) {
  const { total } = command.buffer(stream);
  const before = Math.max(0, first - from);
  const behind = Math.max(0, total - Math.max(from, upTo));
  if (before + behind === 0) return { total_bytes: total, dropped_bytes: 0 };
  return { total_bytes: total, dropped_bytes: before + behind, dropped_from: before > 0 ? from : upTo };
}
