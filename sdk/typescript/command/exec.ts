// A command to its end: run, collect, return.
import {
  CanceledError,
  type EndFrame,
  InternalError,
  SandmeshError,
} from "../../../broker/contract/index.ts";
import type { Box } from "../wire/box.ts";
import { cancelBehind, Follower, type FollowOptions } from "./follow.ts";
import { type CommandOptions, type Prepared, prepare } from "./request.ts";
import { ExecResult } from "./result.ts";
import { pump } from "./stdin.ts";

export interface ExecOptions extends CommandOptions {
  /** Throw CommandFailedError where the command does not exit with 0. */
  check?: boolean;
}

export async function exec(
  box: Box,
  command: string | readonly string[],
  options: ExecOptions,
): Promise<ExecResult> {
  const prepared = prepare(command, options);
  const follower = new Follower(box, followed(prepared, options));
  const input = feed(box, prepared, follower);
  try {
    const result = await collect(box, follower);
    return options.check === true ? result.orThrow() : result;
  } catch (error) {
    if (error instanceof CanceledError) cancelBehind(box, prepared.request.id);
    throw error;
  } finally {
    input?.end();
  }
}

export function followed(prepared: Prepared, options: CommandOptions): FollowOptions {
  return {
    id: prepared.request.id,
    exec: prepared.request,
    keep: options.keep,
    patience: prepared.patience,
    signal: options.signal,
  };
}

export async function collect(box: Box, follower: Follower): Promise<ExecResult> {
  const output: Record<"stdout" | "stderr", Uint8Array[]> = { stdout: [], stderr: [] };
  let frame = await follower.next();
  for (; frame.type === "chunk"; frame = await follower.next())
    if (frame.stream !== "data") output[frame.stream].push(frame.data);
  if (frame.type === "end") return resultOf(frame, box, output);
  throw new InternalError("the answer ended without an outcome", { sandbox: box.id, started: "unknown" });
}

function resultOf(
  frame: EndFrame,
  box: Box,
  output: { stdout: Uint8Array[]; stderr: Uint8Array[] },
): ExecResult {
  if (frame.stdout !== undefined) output.stdout.push(frame.stdout);
  if (frame.stderr !== undefined) output.stderr.push(frame.stderr);
  return new ExecResult(frame, box.id, output.stdout, output.stderr);
}

/** Sends what stdin is not in the request yet, beside the reading of the output. A command that waits for what does not come
 * is ended, and its reader told why. */
export function feed(box: Box, prepared: Prepared, follower: Follower): { end(): void } | undefined {
  if (prepared.stdin === undefined) return undefined;
  const { id } = prepared.request;
  const control = new AbortController();
  // Behind the request on the same connection: the follower asks in the same turn, before this microtask's.
  pump(box, id, prepared.stdin, control.signal).catch((error: Error) => {
    if (error instanceof SandmeshError && !(error instanceof CanceledError)) {
      cancelBehind(box, id);
      return follower.stop(error);
    }
    const { message, cause } = error;
    follower.stop(new CanceledError(message, { cause, field: "stdin", sandbox: box.id, started: "yes" }));
  });
  return { end: () => control.abort() };
}
