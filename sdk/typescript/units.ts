// Units: a number is the base unit (bytes, milliseconds); a text names its unit.
import { InvalidRequestError } from "../../broker/contract/index.ts";

/** A number of milliseconds, or text with a unit: "500ms", "30s", "5m", "1h". */
export type Duration = number | string;
/** A number of bytes, or text with a unit in powers of 1024: "512MiB", "2g", "65536". */
export type Size = number | string;

/** As the caller wrote it: JSON has no NaN and no Infinity, and refuses a bigint. */
function shown(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value);
  return typeof value === "object" && value !== null ? "an object" : String(value);
}

const TIME: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** To whole milliseconds; throws InvalidRequestError naming `field`. A text needs its unit, since "30" could be
 * either. */
export function milliseconds(value: Duration, field: string): number {
  if (typeof value === "number") {
    if (Number.isFinite(value) && value >= 0) return Math.ceil(value);
  } else if (typeof value === "string") {
    const [, number, unit = ""] = /^(\d+(?:\.\d+)?)\s*(ms|s|m|h)$/.exec(value) ?? [];
    const factor = TIME[unit];
    if (number !== undefined && factor !== undefined) return Math.ceil(Number(number) * factor);
  }
  throw new InvalidRequestError(
    `${field}: ${shown(value)} is neither milliseconds nor text such as "500ms", "30s", "5m", "1h"`,
    { field },
  );
}

/** As `milliseconds`, above 0: a limit of 0 is "never" to some programs and "at once" to others. */
export function timeLimit(value: Duration, field: string): number {
  const limitMs = milliseconds(value, field);
  if (limitMs > 0) return limitMs;
  throw new InvalidRequestError(`${field}: a time limit must be above 0; left out, it is the default`, {
    field,
  });
}

const SIZE: Record<string, number> = { "": 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30, t: 2 ** 40 };

/** To whole bytes; throws InvalidRequestError naming `field`. */
export function bytes(value: Size, field: string): number {
  if (typeof value === "number") {
    if (Number.isSafeInteger(value) && value >= 0) return value;
  } else if (typeof value === "string") {
    const [, number, unit = ""] = /^(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?$/i.exec(value) ?? [];
    const factor = SIZE[unit.toLowerCase()];
    if (number !== undefined && factor !== undefined) return Math.round(Number(number) * factor);
  }
  throw new InvalidRequestError(
    `${field}: ${shown(value)} is neither bytes nor text such as "512MiB" or "2g"`,
    { field },
  );
}
