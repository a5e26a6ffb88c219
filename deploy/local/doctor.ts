// `sandmesh doctor`: what this machine can run, what is missing, what is not isolated; and what the cluster can that
// $KUBECONFIG names, or in a pod its own.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { ConflictError, toSandmeshError } from "../../broker/contract/index.ts";
import { findServerBinary } from "../../broker/server/index.ts";
import { DAEMON_PROGRAM, diagnose as diagnoseLocal } from "../../pool/provider/local/index.ts";
import { homePaths, runningSupervisor } from "./home.ts";
import { DAEMON_DIR } from "./left.ts";

export interface Finding {
  check: string;
  ok: boolean;
  detail: string;
  /** What to do where it is not. */
  fix?: string;
  /** Without it nothing runs here; without the others less is isolated or limited. */
  needed: boolean;
}

export async function diagnose(home: string): Promise<Finding[]> {
  return [
    ...(await programs()),
    ...(await localProvider(homePaths(home).local)),
    mesh(home),
    ...(await cluster()),
  ];
}

/** Nothing of it is needed for a mesh on this machine. */
async function cluster(): Promise<Finding[]> {
  // Its client library is large: no other command is to load it.
  const { clusterIsNamed, diagnose } = await import("../../pool/provider/kubernetes/index.ts");
  if (!clusterIsNamed()) return [];
  return (await diagnose()).map((finding) => ({ ...finding, needed: false }));
}

async function programs(): Promise<Finding[]> {
  const server = await findServerBinary().then(
    (path) => ({ ok: true, detail: path }),
    (error) => ({ ok: false, detail: toSandmeshError(error).message, fix: "bash deploy/setup" }),
  );
  const built = existsSync(join(DAEMON_DIR, DAEMON_PROGRAM));
  return [
    { check: "bun", ok: true, detail: Bun.version, needed: true },
    { check: "nats-server", needed: true, ...server },
    {
      check: "daemon",
      ok: built,
      detail: built ? "built" : `not in ${DAEMON_DIR}`,
      fix: "bash deploy/setup",
      needed: true,
    },
  ];
}

async function localProvider(stateDir: string): Promise<Finding[]> {
  return (await diagnoseLocal(stateDir)).map((finding) => ({ needed: false, ...finding }));
}

function mesh(home: string): Finding {
  const about = { check: "mesh", needed: false };
  try {
    const supervisor = runningSupervisor(homePaths(home));
    const detail = supervisor === undefined ? `none is up in ${home}` : `up, pid ${supervisor.pid}`;
    return { ...about, ok: supervisor !== undefined, detail, fix: "sandmesh up" };
  } catch (error) {
    if (!(error instanceof ConflictError)) throw error;
    return { ...about, ok: false, detail: error.message, fix: "another SANDMESH_HOME" };
  }
}
