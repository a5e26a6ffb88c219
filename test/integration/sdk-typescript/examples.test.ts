// The README's examples are the files of examples/, and do what they say.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtemp, readdir, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type LocalMesh, localMesh, run } from "../../e2e/program.ts";

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

test("no example reads or writes at a relative path, which in image host is below the machine's own /", async () => {
  const paths: string[] = [];
  for (const name of Object.keys(SAYS)) {
    const file = await Bun.file(join(SDK, "examples", `${name}.ts`)).text();
    for (const [, path = ""] of file.matchAll(/box\.files\.\w+\((?:join\([^)]*\), )?"([^"]*)"/g))
      paths.push(path);
  }
  expect(paths.length).toBeGreaterThan(5);
  expect(paths.filter((path) => !path.startsWith("/tmp/sandmesh-"))).toEqual([]);
});

describe("on a mesh of real sandboxes, of image host", () => {
  let mesh: LocalMesh;
  beforeAll(async () => {
    mesh = await localMesh();
  }, 60_000);
  afterAll(() => mesh[Symbol.asyncDispose]());

  for (const [name, says] of Object.entries(SAYS)) {
    test(`the example ${name} says what it should, and leaves nothing there or here`, async () => {
      const folder = await mkdtemp(join(tmpdir(), "sandmesh-examples-"));
      try {
        const ran = await run([process.execPath, join(SDK, "examples", `${name}.ts`)], {
          env: { TMPDIR: folder, SANDMESH_HOME: mesh.home },
        });
        expect(ran).toEqual({ code: 0, stdout: says, stderr: "" });
        expect((await mesh.sandmesh("ps", "--ids")).stdout).toBe("");
        expect(await readdir(folder)).toEqual([]);
      } finally {
        await rm(folder, { recursive: true, force: true });
      }
    }, 60_000);
  }
});
