// kubectl, which test/cluster/enter puts on the PATH.

/** Its output. Throws with what it said. */
export async function kubectl(...argv: string[]): Promise<string> {
  const child = Bun.spawn(["kubectl", "--request-timeout=60s", ...argv], { stdout: "pipe", stderr: "pipe" });
  const [out, error] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  if ((await child.exited) !== 0) throw new Error(`kubectl ${argv.join(" ")}: ${error}`);
  return out;
}
