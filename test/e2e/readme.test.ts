// README's examples, run as they stand there.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { copyFile, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { builtPackage } from "../../sdk/typescript/testing/harness.ts";
import { type LocalMesh, localMesh, PROGRAM, ROOT, run } from "./program.ts";

let mesh: LocalMesh;
let folder: string;
beforeAll(async () => {
  mesh = await localMesh();
  // In the checkout, so that `import "sandmesh"` is this checkout's, by its own package.json.
  await mkdir(join(ROOT, "dist"), { recursive: true });
  folder = await mkdtemp(join(ROOT, "dist", "readme-"));
});
afterAll(async () => {
  await mesh[Symbol.asyncDispose]();
  await rm(folder, { recursive: true, force: true });
});

/** Nothing comes over the network: npm links folders of this machine, and asks nobody about them. */
const NPM = {
  npm_config_offline: "true",
  npm_config_audit: "false",
  npm_config_fund: "false",
  npm_config_update_notifier: "false",
};
const LOCAL = ["typescript", "@types/node"].map((name) => join(ROOT, "node_modules", name));

/** What is in a checkout after the package was built there; built elsewhere, since other tests use this one's. */
async function checkoutWithPackage(): Promise<string> {
  const sdk = join(folder, "sdk", "typescript");
  await mkdir(sdk, { recursive: true });
  await copyFile(join(ROOT, "sdk", "typescript", "package.json"), join(sdk, "package.json"));
  await symlink(dirname(await builtPackage()), join(sdk, "dist"));
  return folder;
}

async function example(language: string, start = ""): Promise<string> {
  const readme = await readFile(join(ROOT, "README.md"), "utf8");
  const [, code] = new RegExp(`\`\`\`${language}\\n(${start}[\\s\\S]*?)\`\`\``).exec(readme) ?? [];
  if (code === undefined) throw new Error(`README.md has no example in ${language}`);
  return code;
}

describe("README.md", () => {
  test("the five minutes run as they are pasted, with nothing put in by hand, and leave nothing", async () => {
    const home = await mkdtemp(join(tmpdir(), "sandmesh-tour-"));
    try {
      const told = (await example("console", "\\$ alias")).trimEnd().split("\n");
      const script = told.filter((line) => line.startsWith("$ ")).map((line) => line.slice(2));
      const ran = await run(["bash", "-O", "expand_aliases", "-ec", script.join("\n")], {
        env: { SANDMESH_HOME: home },
      });
      expect({ code: ran.code, stderr: ran.code === 0 ? "" : ran.stderr }).toEqual({ code: 0, stderr: "" });
      const answers = told.filter((line) => !line.startsWith("$ "));
      expect(answers.length).toBeGreaterThan(3);
      expect(ran.stdout.split("\n")).toEqual(expect.arrayContaining(answers));
    } finally {
      await run([...PROGRAM, "down"], {
        env: { SANDMESH_HOME: home },
      });
      await rm(home, { recursive: true, force: true });
    }
  }, 120_000);

  test("the TypeScript example runs as it stands", async () => {
    const file = join(folder, "example.ts");
    await writeFile(file, await example("ts"));
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
      await writeFile(join(project, "task.ts"), await example("ts"));
      const script = recipe
        .replace("npm i -D typescript @types/node", `npm i -D ${LOCAL.join(" ")}`)
        .replace("CHECKOUT", await checkoutWithPackage());
      const env = { ...NPM, SANDMESH_HOME: mesh.home };
      // Each has a minute, of which npm takes most on a busy machine.
      const [made = "", ...rest] = script.split("\n");
      const bash = (lines: string) => run(["bash", "-ec", lines], { env, cwd: project });
      expect(await bash(made)).toMatchObject({ code: 0, stderr: "" });
      const ran = await bash(rest.join("\n"));
      expect(ran).toMatchObject({ code: 0, stdout: expect.stringContaining("/usr 7\n"), stderr: "" });
    } finally {
      await rm(project, { recursive: true });
    }
  }, 180_000);

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
