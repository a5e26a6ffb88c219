// Whose cluster the tests are on: that of test/cluster/up, of which they may freeze and kill everything, or another one that
// $KUBECONFIG names, where what cannot be had is skipped, with its reason.
import { test } from "bun:test";
import { lackOfMusl } from "../images/musl.ts";

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

const testUnless = (missing: readonly string[]): Test =>
  missing.length === 0 ? test : (name) => test.skip(`${name}: skipped, ${missing.join("; ")}`, () => {});

/** `test` for what needs these of its cluster. */
export const needing = (...needs: Need[]): Test => testUnless(needs.filter(lacks).map((need) => WHY[need]));

/** `test` for what is in the image with musl as libc and a shell, which another cluster has from here, too. */
export function inMusl(): Test {
  const lack = lackOfMusl();
  return testUnless(lack === undefined ? [] : [lack]);
}
