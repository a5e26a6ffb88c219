// The built package in Node: the same wire, another runtime.
import { expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import { builtPackage, Program, type Runtime } from "../../../sdk/typescript/testing/harness.ts";
import { liveMesh } from "./mesh.ts";

const ROOT = join(import.meta.dir, "..", "..", "..");

for (const runtime of ["bun", "node"] as Runtime[]) {
  test(`${runtime}: a program acquires, runs, streams, reads and writes, and leaves nothing`, async () => {
    await using live = await liveMesh();
    await using program = await Program.start(runtime, live.server, "core");
    expect(await program.step("exec")).toEqual({
      step: "exec",
      code: 3,
      stdout: "hello\n",
      stderr: "oops\n",
    });
    expect(await program.step("stream")).toMatchObject({ streamed: "streamed\n" });
    expect(await program.step("files")).toMatchObject({ bytes: [0xff, 0, 0x0d, 0x0a] });
    expect(await program.step("error")).toMatchObject({ code: "file_error", reason: "ENOENT" });
    await program.step("closed");
    expect(live.provider.made.size).toBe(0);
    expect(await program.exited).toEqual({ code: 0, signal: null });
  }, 60_000);
}

test("the package's classes and functions have the names that users know, in stack traces, too", async () => {
  const built = await builtPackage();
  const program = `import * as sdk from ${JSON.stringify(built)};
    const wrong = Object.entries(sdk).filter(([name, each]) => typeof each === "function" && each.name !== name);
    try { await sdk.connect({ url: "nats://127.0.0.1:1", credentials: "/no/such/file" }); }
    catch (error) { console.log(JSON.stringify({ wrong: wrong.map(([name, each]) => [name, each.name]), thrown: error.constructor.name, stack: error.stack })); }`;
  const ran = Bun.spawnSync(["node", "--input-type=module", "--eval", program], { cwd: ROOT });
  const { wrong, thrown, stack } = JSON.parse(ran.stdout.toString());
  expect([wrong, thrown]).toEqual([[], "NoMeshError"]);
  expect(stack).toStartWith("NoMeshError: ");
  expect(stack).toMatch(/at (Module\.)?connect /);
}, 120_000);

test("the declarations are what TypeScript 5.2 reads, and compile without skipLibCheck", async () => {
  const types = join(dirname(await builtPackage()), "types");
  for await (const name of new Bun.Glob("**/*.d.ts").scan({ cwd: types })) {
    // Typed arrays have a parameter since 5.7; imports of .ts need a setting.
    const text = await Bun.file(join(types, name)).text();
    expect([name, /Array<(Shared)?ArrayBuffer|from "[^"]*\.ts"/.exec(text)?.[0]]).toEqual([name, undefined]);
  }
  const folder = await mkdtemp(join(types, "user-"));
  try {
    const user = `import { connect } from "../sdk/typescript/mod.js";
      export async function use(): Promise<string> {
        await using mesh = await connect();
        await using box = await mesh.acquire({ image: "host" });
        return (await box.exec("true")).stdout.text;
      }`;
    await Bun.write(join(folder, "user.ts"), user);
    const compilerOptions = {
      strict: true,
      module: "NodeNext",
      target: "ES2022",
      lib: ["ES2022", "ESNext.Disposable"],
      noEmit: true,
      types: ["node"],
      skipLibCheck: false,
    };
    await Bun.write(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["user.ts"] }));
    const tsc = Bun.spawn([join(ROOT, "node_modules", ".bin", "tsc"), "-p", folder], { stdout: "pipe" });
    expect(await new Response(tsc.stdout).text()).toBe("");
    expect(await tsc.exited).toBe(0);
  } finally {
    await rm(folder, { recursive: true });
  }
}, 120_000);
