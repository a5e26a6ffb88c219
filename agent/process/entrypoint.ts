// The image's own program, beside the daemon, where the bootstrap names it: a command as any other, of which nobody asks.
import { check, ExecRequest } from "../../broker/contract/index.ts";
import type { RunningCommand } from "../../broker/endpoint/executor.ts";
import type { Commands } from "../exec/exec.ts";

interface Log {
  warn(fields: object, message: string): void;
  info(fields: object, message: string): void;
}

/** Starts `argv`, with the sandbox's environment, folder and user; its output is the daemon's own, which a container engine
 * keeps as the log. That it cannot be run, or has ended, is told in the log only: the sandbox goes on. */
export function startEntrypoint(commands: Commands, argv: string[], log: Log): void {
  let running: RunningCommand | undefined;
  running = commands.exec(check(ExecRequest, { version: 1, argv }), {
    output(stream, data) {
      const to = stream === "stderr" ? process.stderr : process.stdout;
      if (to.write(data)) return;
      // Who reads the log slowly makes the program wait, and not the memory grow.
      running?.pause(true);
      to.once("drain", () => running?.pause(false));
    },
    started: (pid) => log.info({ pid }, "the entrypoint has started"),
    ended: ({ outcome }) => log.warn({ program: argv[0], outcome }, "the entrypoint has ended"),
    fail: (error) => log.warn({ program: argv[0], error: error.message }, "the entrypoint is lost"),
  });
}
