// What the command line passes on to a command that another client writes to, too.
import { expect, test } from "bun:test";
import { until } from "../../broker/server/testing.ts";
import { connect, type Mesh } from "../../sdk/typescript/mod.ts";
import { onOneMesh } from "./one-mesh.ts";
import { PROGRAM } from "./program.ts";

const here = onOneMesh();

const another = (): Promise<Mesh> =>
  connect({ url: here.url, credentials: here.credentials, handleSignals: false });

/** `exec -i cat`, as somebody types to it, and what it has written. */
function cat(id: string) {
  const child = Bun.spawn([...PROGRAM, "exec", "-i", "--timeout", "40s", id, "--", "cat"], {
    env: { ...process.env, SANDMESH_HOME: here.home },
    stdin: "pipe",
    stdout: "pipe",
    stderr: "pipe",
  });
  const seen = { text: "" };
  const read = (async () => {
    for await (const part of child.stdout) seen.text += Buffer.from(part).toString();
  })();
  const says = (text: string) => until(`it wrote ${text}`, () => seen.text.endsWith(text));
  const type = async (text: string): Promise<void> => {
    child.stdin.write(text);
    await child.stdin.flush();
  };
  const ended = async () => {
    await read;
    return { code: await child.exited, stdout: seen.text, stderr: await new Response(child.stderr).text() };
  };
  return { child, type, says, ended };
}

test("what exec -i passes on and what another client writes are both read, by turns", async () => {
  const id = await here.acquired();
  await using mesh = await another();
  const typed = cat(id);
  await typed.type("typed 0\n");
  await typed.says("typed 0\n");
  const [running] = await mesh.sandbox(id).commands();
  const theirs = mesh.sandbox(id).command(running?.id ?? "").stdin;
  for (let turn = 0; turn < 3; turn++) {
    await theirs.write(`theirs ${turn}\n`);
    await typed.says(`theirs ${turn}\n`);
    await typed.type(`typed ${turn + 1}\n`);
    await typed.says(`typed ${turn + 1}\n`);
  }
  typed.child.stdin.end();
  const stdout = "typed 0\ntheirs 0\ntyped 1\ntheirs 1\ntyped 2\ntheirs 2\ntyped 3\n";
  expect(await typed.ended()).toEqual({ code: 0, stdout, stderr: "" });
  await here.sandmesh("release", id);
});
