// Values as people type them: durations and sizes.
import { InvalidArgumentError } from "commander";
import { MAX_LEASE_MS, MIN_LEASE_MS } from "../../broker/contract/index.ts";
import { bytes, milliseconds } from "../typescript/units.ts";
import { isTextVariable } from "./words.ts";

/** The SDK's own parsers, with errors that the command line prints beside the option. */
function parsed(parse: () => number, examples: string): number {
  try {
    return parse();
  } catch {
    throw new InvalidArgumentError(`examples: ${examples}`);
  }
}

/** "500ms", "30s", "5m", "1h"; a plain number is seconds. To milliseconds. */
export const parseDuration = (text: string): number =>
  parsed(
    () => milliseconds(/^[\d.]+$/.test(text) ? `${text}s` : text, "duration"),
    '"500ms", "30s", "5m", "1h"',
  );

/** A duration above 0, as the SDKs have it. */
export function parseLimit(text: string): number {
  const limitMs = parseDuration(text);
  if (limitMs === 0) throw new InvalidArgumentError("must be above 0; left out, it is the default");
  return limitMs;
}

/** A lease, as long as the pool gives at least. */
export function parseLease(text: string): number {
  const leaseMs = parseDuration(text);
  if (leaseMs < MIN_LEASE_MS) throw new InvalidArgumentError("must be at least 1s");
  if (leaseMs > MAX_LEASE_MS) throw new InvalidArgumentError("must be at most 24h; renew it");
  return leaseMs;
}

/** "512m", "2GiB", "65536": powers of 1024. To bytes. */
const parseSize = (text: string): number => parsed(() => bytes(text, "size"), '"512m", "2GiB"');

/** A size of at least so much, as it is typed. */
export const sizeFrom =
  (least: string) =>
  (text: string): number => {
    const size = parseSize(text);
    if (size < parseSize(least)) throw new InvalidArgumentError(`must be at least ${least}`);
    return size;
  };

export const ENV_HELP = "add to the environment (again for more); KEY alone: with the value that it has here";

/** "KEY=VALUE" options, collected; "KEY" alone takes the value that this process has, as docker does. */
export function collectEnv(text: string, soFar: Record<string, string> = {}): Record<string, string> {
  const split = text.indexOf("=");
  const name = split < 0 ? text : text.slice(0, split);
  const value = split < 0 ? process.env[name] : text.slice(split + 1);
  if (name === "") throw new InvalidArgumentError("not KEY=VALUE");
  if (split < 0 && !isTextVariable(name)) throw new InvalidArgumentError("its value is no UTF-8");
  return value === undefined ? soFar : { ...soFar, [name]: value };
}

/** A whole number, 0 or more. */
export function parseCount(text: string): number {
  if (!/^\d+$/.test(text)) throw new InvalidArgumentError("not a whole number");
  return Number(text);
}

/** A whole number of at least so much. */
export const countFrom =
  (least: number) =>
  (text: string): number => {
    const count = parseCount(text);
    if (count < least) throw new InvalidArgumentError(`must be at least ${least}`);
    return count;
  };

/** A whole number above 0. */
export const parseSome = countFrom(1);

/** A number of cores above 0, such as "0.5". */
export function parseCores(text: string): number {
  const cores = Number(text);
  if (!(cores > 0)) throw new InvalidArgumentError('not a number of cores; examples: "1", "0.5"');
  return cores;
}
