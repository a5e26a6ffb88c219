// Whose cluster the tests are on: that of test/cluster/up, of which they may freeze and kill everything, or another one that
// $KUBECONFIG names, where what cannot be had is skipped, with its reason.
import { test } from "bun:test";

/** As test/cluster/test and test/e2e-cluster/run have found it. */
export const FOREIGN = process.env.SANDMESH_CLUSTER_FOREIGN === "true";

const WHY = {
  programs: "it stops, kills or speaks for the cluster's own programs",
  node: "it needs its node's processes, runtime or addresses, or a node for itself",
  kwok: "it needs nodes of KWOK, by the label type=kwok",
} as const;
type Need = keyof typeof WHY;

export const lacks = (need: Need): boolean =>
  need === "kwok" ? process.env.SANDMESH_CLUSTER_KWOK === "false" : FOREIGN;

type Test = (name: string, work: () => Promise<unknown>, limitMs?: number) => void;

/** `test` for what needs these of its cluster. */
export function needing(...needs: Need[]): Test {
  const missing = needs.filter(lacks).map((need) => WHY[need]);
  if (missing.length === 0) return test;
  return (name) => test.skip(`${name}: skipped, ${missing.join("; ")}`, () => {});
}
