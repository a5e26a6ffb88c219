// The pool's share of the API server: by the chart's flow schema its requests are told from all others'.
import { expect, setDefaultTimeout, test } from "bun:test";
import { kubectl } from "./cluster.ts";
import { INSTALLED } from "./install.ts";

setDefaultTimeout(60_000);
const { namespace, sandboxes, release } = INSTALLED;
const POOL = `system:serviceaccount:${namespace}:${release}-pool`;
const OWN = `${namespace}-${release}`;

const uidOf = (kind: string): Promise<string> => kubectl("get", kind, OWN, "-o", "jsonpath={.metadata.uid}");

/** The flow schema and the priority level under which the API server has dealt with a request of `who`. */
async function dealtWith(who: string, where: string): Promise<(string | undefined)[]> {
  const argv = ["kubectl", "get", "pods", "-n", where, `--as=${who}`, "-v=8"];
  const child = Bun.spawn(argv, { stdout: "ignore", stderr: "pipe" });
  const said = await new Response(child.stderr).text();
  const header = (name: string) => new RegExp(`X-Kubernetes-Pf-${name}-Uid: *(\\S+)`, "i").exec(said)?.[1];
  return [header("FlowSchema"), header("PriorityLevel")];
}

test("requests of the pool for sandboxes have the priority level of the chart, and no others", async () => {
  const own = [await uidOf("flowschema"), await uidOf("prioritylevelconfiguration")];
  expect(await dealtWith(POOL, sandboxes)).toEqual(own);
  for (const [who, where] of [
    [POOL, "default"],
    [`system:serviceaccount:${sandboxes}:default`, sandboxes],
  ] as const) {
    const [schema, level] = await dealtWith(who, where);
    expect([schema, level]).not.toContain(undefined);
    expect([schema === own[0], level === own[1]]).toEqual([false, false]);
  }
});
