// Values as people type them: durations and sizes.
import { InvalidArgumentError } from "commander";

const TIME: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000 };

/** "500ms", "30s", "5m", "1h"; a plain number is seconds. To milliseconds. */
export function parseDuration(text: string): number {
  const [, number, unit = "s"] = /^(\d+(?:\.\d+)?)(ms|s|m|h)?$/.exec(text) ?? [];
  const factor = TIME[unit];
  if (number === undefined || factor === undefined) {
    throw new InvalidArgumentError('not a duration; examples: "500ms", "30s", "5m", "1h"');
  }
  return Math.round(Number(number) * factor);
}

const SIZE: Record<string, number> = { "": 1, k: 2 ** 10, m: 2 ** 20, g: 2 ** 30, t: 2 ** 40 };

/** "512m", "2GiB", "65536": powers of 1024. To bytes. */
export function parseSize(text: string): number {
  const [, number, unit = ""] = /^(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?$/i.exec(text) ?? [];
  const factor = SIZE[unit.toLowerCase()];
  if (number === undefined || factor === undefined) {
    throw new InvalidArgumentError('not a size; examples: "512m", "2GiB"');
  }
  return Math.round(Number(number) * factor);
}

/** "KEY=VALUE" options, collected; "KEY" alone takes the value that this process has, as docker does. */
export function collectEnv(text: string, so_far: Record<string, string> = {}): Record<string, string> {
  const split = text.indexOf("=");
  const name = split < 0 ? text : text.slice(0, split);
  const value = split < 0 ? process.env[name] : text.slice(split + 1);
  if (name === "") throw new InvalidArgumentError("not KEY=VALUE");
  return value === undefined ? so_far : { ...so_far, [name]: value };
}

export function parseCount(text: string): number {
  if (!/^\d+$/.test(text)) throw new InvalidArgumentError("not a whole number");
  return Number(text);
}
export function parseCores(text: string): number {
  const cores = Number(text);
  if (!(cores > 0)) throw new InvalidArgumentError('not a number of cores; examples: "1", "0.5"');
  return cores;
}
