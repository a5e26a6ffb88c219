// `sandmesh shell`: this terminal, joined to one in a sandbox.
import { spawnSync } from "node:child_process";
import { InvalidRequestError, type Outcome } from "../../broker/contract/index.ts";
import { onAbort } from "../../broker/link/on-abort.ts";
import type { Terminal } from "../typescript/mod.ts";
import { defined } from "../typescript/spec.ts";
import type { Context } from "./context.ts";
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
  words: string[],
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
      command: words.length > 0 ? words : undefined,
      user: flags.user,
      cwd: flags.workdir,
    }),
  });
  const resize = () => void terminal.resize(stdout.rows, stdout.columns).catch(() => undefined);
  const hangUp = () => void terminal.close().catch(() => undefined);
  const unhear = onAbort(context.signal, hangUp);
  stdout.on("resize", resize);
  const restore = rawMode();
  const typing = pipeTyping(terminal);
  let outcome: Outcome;
  try {
    ({ outcome } = await copyOutput(terminal.output, context));
  } catch (error) {
    hangUp();
    throw error;
  } finally {
    restore();
    typing.stop();
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

/** What is typed goes in, in order; the end of input is Ctrl-D, as a terminal says it. */
function pipeTyping(terminal: Terminal): { stop(): void } {
  const { stdin } = process;
  let last: Promise<void> = Promise.resolve();
  const send = (data: Uint8Array) => {
    // Written after the one before it; what comes after the program's end has nowhere to go.
    last = last.then(() => terminal.write(data)).catch(() => undefined);
  };
  let again: ReturnType<typeof setInterval> | undefined;
  const end = () => {
    const type = () => send(Uint8Array.of(4));
    type();
    again = setInterval(type, END_AGAIN_MS);
  };
  stdin.on("data", send);
  stdin.on("end", end);
  return {
    stop() {
      clearInterval(again);
      stdin.off("data", send);
      stdin.off("end", end);
      stdin.pause();
      stdin.unref?.();
    },
  };
}
