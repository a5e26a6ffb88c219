// A cluster that $KUBECONFIG names, as which the one of test/cluster/up is given here.
import { expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import { needing } from "../needs.ts";

setDefaultTimeout(90_000);
const TEST = join(import.meta.dir, "..", "test");

async function run(kubeconfig: string | undefined, file: string) {
  const env = { ...process.env, KUBECONFIG: kubeconfig ?? process.env.KUBECONFIG };
  const child = Bun.spawn(["bash", TEST, file], { env, stdout: "pipe", stderr: "pipe" });
  const [out, said] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  return { status: await child.exited, out, said };
}

test("it is said first what is made there, and what the cluster cannot do is skipped, with the reason", async () => {
  const { status, said } = await run(undefined, "./test/cluster/api/history.test.ts");
  expect(said).toMatch(
    /^cluster: the tests run on the cluster of \$KUBECONFIG: context \S+, https:\/\/\S+\. On it they make/,
  );
  const names = said.indexOf("namespaces test-…");
  const skipped = said.indexOf("skipped, it stops, kills or speaks for the cluster's own programs");
  expect(names).toBeGreaterThan(0);
  expect(skipped).toBeGreaterThan(names);
  expect(said).toMatch(/\b1 skip\b/);
  expect(status).toBe(0);
});

needing("kwok")("the others run there as they do on ours", async () => {
  const { status, said } = await run(undefined, "./test/cluster/api/owner.test.ts");
  expect(said).toMatch(/\b1 pass\b/);
  expect(said).not.toMatch(/[1-9]\d* (skip|fail)\b/);
  expect(status).toBe(0);
});

test("one that cannot be used is said to be that, and none is brought up in its place", async () => {
  const { status, out, said } = await run("/nonexistent/kubeconfig", "./test/cluster/api/owner.test.ts");
  expect(said).toContain("/nonexistent/kubeconfig");
  expect(out).not.toContain("pass");
  expect(status).toBe(1);
});
