// Which environment commands get: the image's own, as the launcher found it, without what is the daemon's.
import { readFileSync } from "node:fs";

/** The launcher renames what would act on the daemon itself (LD_PRELOAD, BUN_OPTIONS, …) by this prefix. */
const KEPT_PREFIX = "SANDMESH_KEPT_";
/** Every command's processes carry this, with the command's id: how they are found when they have left its session. */
export const MARKER = "SANDMESH_COMMAND";
/** The daemon's own settings; what the image had under these names stands behind KEPT_PREFIX. */
const OWN_PREFIXES = ["SANDMESH_", "BUN_", "MIMALLOC_", "UV_THREADPOOL_SIZE"];
const isOwn = (name: string): boolean => OWN_PREFIXES.some((prefix) => name.startsWith(prefix));
export const DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/** Names to values, both as latin1 text: bytes that are no UTF-8 come through unchanged. */
export type Environment = ReadonlyMap<string, string>;

/** Takes apart what /proc/<pid>/environ holds. */
function parseEnviron(bytes: Uint8Array): Map<string, string> {
  const variables = new Map<string, string>();
  for (const entry of Buffer.from(bytes).toString("latin1").split("\0")) {
    const equals = entry.indexOf("=");
    if (equals > 0) variables.set(entry.slice(0, equals), entry.slice(equals + 1));
  }
  return variables;
}

/** What commands start from: the daemon's environment with the image's own values back in place, the sandbox's added,
 * and, as container engines do, a PATH where there is none. */
export function commandEnvironment(
  own: Environment,
  added: Readonly<Record<string, string>> = {},
): Environment {
  const result = new Map<string, string>();
  for (const [name, value] of own) if (!isOwn(name)) result.set(name, value);
  for (const [name, value] of own)
    if (name.startsWith(KEPT_PREFIX)) result.set(name.slice(KEPT_PREFIX.length), value);
  for (const [name, value] of Object.entries(added)) result.set(bytesOf(name), bytesOf(value));
  if (!result.has("PATH")) result.set("PATH", DEFAULT_PATH);
  return result;
}

/** Text from a message as latin1 text of its UTF-8 bytes. */
export const bytesOf = (text: string): string => Buffer.from(text).toString("latin1");

/** The environment that this process was started with, byte for byte. */
export const ownEnvironment = (): Environment => parseEnviron(readFileSync("/proc/self/environ"));
