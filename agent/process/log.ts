// The daemon's log: pino, loaded when there is something to say, so that a boot with nothing to say does not pay for it.
import type { Log } from "../../broker/endpoint/log.ts";

export const LOG_LEVELS = ["debug", "info", "warn", "error"] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export interface LogOptions {
  /** Lines below it are dropped. */
  level: LogLevel;
  /** A file to append to; default stderr. */
  file?: string;
}

/** A log whose lines are written in order; `flushed` resolves when all so far are out. */
export function lazyLog({ level, file }: LogOptions): Log & { flushed(): Promise<void> } {
  let writer: Log | undefined;
  let loading: Promise<void> = Promise.resolve();
  let queued = 0;
  const load = async (): Promise<Log> => {
    const { pino } = await import("pino");
    const destination = pino.destination({ dest: file ?? 2, sync: true, append: true, mkdir: false });
    const logger = pino({ level, base: null, timestamp: pino.stdTimeFunctions.isoTime }, destination);
    const write =
      (at: LogLevel) =>
      (fields: object, message: string): void =>
        logger[at](fields, message);
    return { debug: write("debug"), info: write("info"), warn: write("warn"), error: write("error") };
  };
  const line =
    (at: LogLevel) =>
    (fields: object, message: string): void => {
      if (LOG_LEVELS.indexOf(at) < LOG_LEVELS.indexOf(level)) return;
      if (writer !== undefined && queued === 0) {
        writer[at](fields, message);
        return;
      }
      queued++;
      loading = loading.then(async () => {
        writer ??= await load();
        queued--;
        writer[at](fields, message);
      });
    };
  return {
    debug: line("debug"),
    info: line("info"),
    warn: line("warn"),
    error: line("error"),
    flushed: () => loading,
  };
}
