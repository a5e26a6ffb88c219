// README's examples, run as they stand there.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type LocalMesh, localMesh, ROOT, run } from "./program.ts";

let mesh: LocalMesh;
let folder: string;
beforeAll(async () => {
  mesh = await localMesh();
  // In the checkout, so that `import "sandmesh"` is this checkout's.
  folder = await mkdtemp(join(ROOT, "node_modules", ".readme-"));
});
afterAll(async () => {
  await mesh[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

async function example(language: string): Promise<string> {
  const readme = await readFile(join(ROOT, "README.md"), "utf8");
  const [, code] = new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``).exec(readme) ?? [];
  if (code === undefined) throw new Error(`README.md has no example in ${language}`);
  return code;
}

describe("README.md", () => {
  test("the TypeScript example runs as it stands", async () => {
    const file = join(folder, "example.ts");
    await writeFile(
      file,
      (await example("ts")).replace('"sandmesh"', JSON.stringify(join(ROOT, "sdk", "typescript", "mod.ts"))),
    );
    const ran = await run([process.execPath, file], { env: { SANDMESH_HOME: mesh.home } });
    expect({ code: ran.code, stderr: ran.stderr }).toEqual({ code: 0, stderr: "" });
    expect(ran.stdout).toContain("hello\n");
    expect(ran.stdout).toContain("1\n2\n3\n");
    expect(ran.stdout).toContain("/usr 7\n");
    expect(ran.stdout).toContain("4\n");
    expect((await mesh.sandmesh("ps", "--ids")).stdout.trim()).toBe("");
  });

  test("the Python example runs as it stands", async () => {
    const file = join(folder, "example.py");
    await writeFile(file, await example("python"));
    const ran = await run(["bash", join(ROOT, "sdk", "python", "run"), file], {
      env: { SANDMESH_HOME: mesh.home },
    });
    expect({ code: ran.code, stderr: ran.code === 0 ? "" : ran.stderr }).toEqual({ code: 0, stderr: "" });
    expect(ran.stdout).toContain("hello\n");
    expect((await mesh.sandmesh("ps", "--ids")).stdout.trim()).toBe("");
  });
});
