// A program that is run for what it prints, such as kubectl, which test/cluster/enter puts on the PATH.

/** What it printed; `input` is what it reads. Throws with what it complained. */
export async function output(argv: string[], input?: string): Promise<string> {
  const child = Bun.spawn(argv, {
    stdin: input === undefined ? "ignore" : Buffer.from(input),
    stdout: "pipe",
    stderr: "pipe",
  });
  const [out, error] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  if ((await child.exited) !== 0) throw new Error(`${argv.join(" ")}: ${error}`);
  return out;
}
