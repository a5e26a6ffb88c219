// The system's errors on the provider's own files, as errors that say what failed and may cross the wire.
import { existsSync } from "node:fs";
import { statfs } from "node:fs/promises";
import { join } from "node:path";
import { ProviderError, SandmeshError } from "../../../broker/contract/index.ts";

const WORDS: Record<string, string> = {
  ENOSPC: "no space is left on the mesh's disk",
  EDQUOT: "the mesh's disk quota is used up",
  EROFS: "the mesh's disk is read-only",
  EACCES: "the mesh may not write to its own folder",
  EPERM: "the mesh may not write to its own folder",
};

/** ProviderError with the errno as its reason, where `thrown` is an error of the system; otherwise as it was. */
export function providerFault(thrown: unknown, what: string, sandbox?: string): unknown {
  if (thrown instanceof SandmeshError || !(thrown instanceof Error)) return thrown;
  if (!("code" in thrown) || typeof thrown.code !== "string" || !/^E[A-Z0-9]+$/.test(thrown.code))
    return thrown;
  const why = WORDS[thrown.code];
  return new ProviderError(`${what}: ${why === undefined ? "" : `${why} `}(${thrown.message})`, {
    reason: thrown.code,
    cause: thrown,
    ...(sandbox === undefined ? {} : { sandbox }),
  });
}

const MOST_RESERVE_BYTES = 64 * 1024 ** 2;
const RESERVE_SHARE = 100;

/** What running sandboxes have left of the disk is kept for the mesh's records: a new one is refused below 1 % of it, at
 * most 64 MiB. Throws ProviderError. */
export async function needRoom(stateDir: string, sandbox: string): Promise<void> {
  const { bsize, blocks, bavail } = await statfs(stateDir);
  const left = bsize * bavail;
  if (left >= Math.min(MOST_RESERVE_BYTES, (bsize * blocks) / RESERVE_SHARE)) return;
  throw new ProviderError(
    `sandbox ${sandbox} could not be started: ${WORDS.ENOSPC} (${Math.floor(left / 1024)} KiB are left in ${stateDir})`,
    { sandbox, reason: "ENOSPC" },
  );
}

/** In the daemon's folder, what a sandbox starts with. */
export const DAEMON_PROGRAM = "sandmesh-agent";

/** Throws ProviderError where the daemon's folder is not there, or is not one. `whatFailed` begins the message. */
export function needDaemon(daemonDir: string, whatFailed: string, sandbox?: string): void {
  if (existsSync(join(daemonDir, DAEMON_PROGRAM))) return;
  throw new ProviderError(
    `${whatFailed}: the daemon is not in ${daemonDir}: run \`bash deploy/setup\` in the checkout, which builds it`,
    { reason: "ENOENT", ...(sandbox === undefined ? {} : { sandbox }) },
  );
}
