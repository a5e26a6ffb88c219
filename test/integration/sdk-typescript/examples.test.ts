// The README's examples are the files of examples/, and do what they say.
import { expect, test } from "bun:test";
import { mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { credentialsOf } from "../../../sdk/typescript/testing/harness.ts";
import { liveMesh } from "./mesh.ts";

const SDK = join(import.meta.dir, "..", "..", "..", "sdk", "typescript");

const SAYS: Record<string, string> = {
  first: 'exit code 3, wrote "hello\\n"\n',
  close: "Linux\n",
  burst: "0 1 4 9\n",
  stream:
    'stdout step 1\nstep 2\nstep 3\nstderr done\n{\n  type: "exited",\n  code: 0,\n}\ngiven up\ngot a line\n',
  files: "print(6 * 7)\n\nfile 13 main.py\ntrue\nENOENT\n",
  shell: "hello from /usr\n",
};

test("every example of the README is a file, word for word, and every file stands in the README", async () => {
  const readme = await Bun.file(join(SDK, "README.md")).text();
  const blocks = [...readme.matchAll(/\(examples\/(\w+)\.ts\)\n\n```ts\n(.*?)```/gs)];
  expect(blocks.map(([, name]) => name).sort()).toEqual(Object.keys(SAYS).sort());
  expect([...readme.matchAll(/```ts/g)].length).toBe(blocks.length);
  for (const [, name, code] of blocks) {
    const file = await Bun.file(join(SDK, "examples", `${name}.ts`)).text();
    expect(code).toBe(file.replace('"../mod.ts"', '"sandmesh"'));
  }
  expect((await readdir(join(SDK, "examples"))).length).toBe(blocks.length);
});

for (const [name, says] of Object.entries(SAYS)) {
  test(`the example ${name} says what it should, and leaves nothing`, async () => {
    await using live = await liveMesh();
    const folder = await mkdtemp(join(tmpdir(), "sandmesh-examples-"));
    try {
      const credentials = join(folder, "user.creds");
      await writeFile(credentials, credentialsOf(live.server), { mode: 0o600 });
      const program = Bun.spawn([process.execPath, join(SDK, "examples", `${name}.ts`)], {
        env: {
          ...process.env,
          TMPDIR: folder,
          SANDMESH_URL: live.server.url,
          SANDMESH_CREDS: credentials,
        },
        stdout: "pipe",
        stderr: "pipe",
      });
      const [stdout, stderr] = await Promise.all([
        new Response(program.stdout).text(),
        new Response(program.stderr).text(),
      ]);
      expect([stdout, stderr]).toEqual([says, ""]);
      expect(await program.exited).toBe(0);
      expect(live.provider.made.size).toBe(0);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }, 60_000);
}
