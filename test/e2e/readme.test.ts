// README's examples, run as they stand there.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { builtPackage } from "../../sdk/typescript/testing/harness.ts";
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

async function example(language: string, start = ""): Promise<string> {
  const readme = await readFile(join(ROOT, "README.md"), "utf8");
  const [, code] = new RegExp(`\`\`\`${language}\\n(${start}[\\s\\S]*?)\`\`\``).exec(readme) ?? [];
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

  test("the recipe for Node is the same in both READMEs, and runs in a new project, word for word", async () => {
    const recipe = (await example("sh", "npm ")).trimEnd();
    expect(await readFile(join(ROOT, "sdk", "typescript", "README.md"), "utf8")).toContain(recipe);
    // Elsewhere: here the compiler would find this checkout's tsconfig.json.
    const project = await mkdtemp(join(tmpdir(), "sandmesh-project-"));
    try {
      await mkdir(join(project, "node_modules", "sandmesh"), { recursive: true });
      await writeFile(join(project, "task.ts"), await example("ts"));
      // Nothing comes over the network: what is installed is this checkout's, put in its place.
      const [made, installed, ...lines] = recipe.split("\n");
      expect(made).toEndWith(" && npm i -D typescript @types/node");
      expect(installed).toBe("npm i CHECKOUT/sdk/typescript");
      const [begun] = made?.split(" && npm i ") ?? [];
      for (const name of ["typescript", "@types", ".bin"])
        await symlink(join(ROOT, "node_modules", name), join(project, "node_modules", name));
      const sdk = dirname(await builtPackage());
      const manifest = JSON.stringify({
        name: "sandmesh",
        type: "module",
        exports: { ".": { types: "./dist/types/sdk/typescript/mod.d.ts", default: "./dist/mod.js" } },
      });
      await writeFile(join(project, "node_modules", "sandmesh", "package.json"), manifest);
      await symlink(sdk, join(project, "node_modules", "sandmesh", "dist"));
      const script = [begun, ...lines].join("\n");
      const ran = await run(["bash", "-ec", script], { env: { SANDMESH_HOME: mesh.home }, cwd: project });
      expect(ran).toMatchObject({ code: 0, stdout: expect.stringContaining("/usr 7\n"), stderr: "" });
    } finally {
      await rm(project, { recursive: true });
    }
  }, 120_000);

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
