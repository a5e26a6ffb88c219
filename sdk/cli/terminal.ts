// `sandmesh shell`: this terminal, joined to one in a sandbox.
import { spawnSync } from "node:child_process";
import {
  CanceledError,
  ConflictError,
  InvalidRequestError,
  type Outcome,
} from "../../broker/contract/index.ts";
import { onAbort } from "../../broker/link/on-abort.ts";
import { SourceError } from "../typescript/command/stdin.ts";
import type { Terminal } from "../typescript/mod.ts";
import { defined } from "../typescript/spec.ts";
import { pause } from "../typescript/wire/pause.ts";
import type { Context } from "./context.ts";
import { counted, shown } from "./output.ts";
import { copyOutput, report } from "./stream.ts";

export interface ShellFlags {
  user?: string;
  workdir?: string;
  hangUpAfter?: number;
}

/** Longer than a client waits for a server that is away, so that one that comes back finds its terminal. */
const HANG_UP_MS = 90_000;

export async function openShell(
  context: Context,
  id: string,
  command: string | string[] | undefined,
  flags: ShellFlags,
): Promise<number> {
  const { stdout } = process;
  if (context.output.json) throw new InvalidRequestError("a terminal has no --json", { field: "json" });
  const terminal = await context.mesh.sandbox(id).terminal({
    rows: stdout.rows || 24,
    cols: stdout.columns || 80,
    term: process.env.TERM || "xterm-256color",
    // 0 is never: left out it is a minute and a half.
    ...defined({
      hangUpAfter: (flags.hangUpAfter ?? HANG_UP_MS) || undefined,
      command,
      user: flags.user,
      cwd: flags.workdir,
    }),
  });
  const resize = () => void terminal.resize(stdout.rows, stdout.columns).catch(() => undefined);
  const hangUp = () => void terminal.close().catch(() => undefined);
  const unhear = onAbort(context.signal, hangUp);
  stdout.on("resize", resize);
  const restore = rawMode();
  // In the middle of a screen of the program's.
  const typing = pipeTyping(terminal, (text) => context.output.note(`\r${text}\r`));
  let outcome: Outcome | undefined;
  try {
    ({ outcome } = await Promise.race([copyOutput(terminal.output, context), typing.failed]));
  } catch (error) {
    hangUp();
    throw error;
  } finally {
    typing.stop(outcome === undefined);
    restore();
    stdout.off("resize", resize);
    unhear();
  }
  return report(outcome, {}, context);
}

/** Ctrl-C and all else is for the program inside, whose own terminal turns it into a signal. Not setRawMode: that
 * leaves the translation of line ends on, and each line would end in two carriage returns. */
function rawMode(): () => void {
  if (process.stdin.isTTY !== true) return () => undefined;
  const stty = (...words: string[]) =>
    spawnSync("stty", words, { stdio: ["inherit", "pipe", "ignore"], encoding: "utf8" }).stdout?.trim();
  const before = stty("-g");
  if (!before) {
    process.stdin.setRawMode(true);
    return () => process.stdin.setRawMode(false);
  }
  stty("raw", "-echo");
  return () => void stty(before);
}

/** A shell that is just setting its terminal up loses a Ctrl-D that came before; so it is typed until it is heard. */
const END_AGAIN_MS = 250;

const CTRL_D = Uint8Array.of(4);

/** What is typed, in order; the end of input is CTRL_D, as a terminal says it, which nobody has typed. */
async function* typed(signal: AbortSignal): AsyncGenerator<Uint8Array, void, void> {
  for await (const part of process.stdin) if (part instanceof Uint8Array) yield part;
  for (; !signal.aborted; await pause(END_AGAIN_MS, signal)) yield CTRL_D;
}

interface Typing {
  /** Rejects where this process's input cannot be read. */
  failed: Promise<never>;
  stop(failed: boolean): void;
}

/** What is typed goes in. While the sandbox is away it waits, with what this process reads ahead and what the system keeps of
 * a terminal's or a pipe's input behind it. */
function pipeTyping(terminal: Terminal, note: (text: string) => void): Typing {
  const over = new AbortController();
  const { signal } = over;
  let waits = 0;
  const send = async (part: Uint8Array) => {
    waits = part === CTRL_D ? 0 : part.length;
    try {
      await terminal.command.stdin.feed([part], true, signal);
    } catch (error) {
      // What comes after the program's end has nowhere to go, and why all else ends is told with the output's end.
      if (error instanceof ConflictError && waits > 0) note(notSent(waits, `: ${error.message}`));
    }
    waits = 0;
  };
  const sendAll = async () => {
    for await (const part of typed(signal)) if (!signal.aborted) await send(part);
  };
  const { promise: failed, reject } = Promise.withResolvers<never>();
  sendAll().catch((cause) => reject(new CanceledError(new SourceError(cause).message)));
  return {
    failed,
    stop(failed) {
      if (failed && waits > 0) note(notSent(waits));
      over.abort();
      process.stdin.pause();
      process.stdin.unref?.();
    },
  };
}

const notSent = (bytes: number, why = ""): string =>
  `sandmesh: ${counted(bytes, "byte")} that ${bytes === 1 ? "was" : "were"} typed did not arrive${shown(why)}`;
