// What the endpoint writes its log with; pino's logger fits. Never a secret, never a command's content.
export interface Log {
  debug(fields: object, message: string): void;
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
  error(fields: object, message: string): void;
}

const nothing = (): void => {};
/** For those who want no log. */
export const SILENT: Log = { debug: nothing, info: nothing, warn: nothing, error: nothing };
