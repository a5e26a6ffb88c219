// The built package in Node: the same wire, another runtime.
import { expect, test } from "bun:test";
import { copyFile, mkdtemp, rm } from "node:fs/promises";
import { dirname, join } from "node:path";
import {
  builtPackage,
  credentialsOf,
  Program,
  type Runtime,
} from "../../../sdk/typescript/testing/harness.ts";
import { liveMesh, scratch } from "./mesh.ts";

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

test("node: a connection's first end, half or full, and its reset reach the other side, both ways and from both", async () => {
  await using live = await liveMesh();
  await using program = await Program.start("node", live.server, "ports");
  for (const way of ["forward", "expose"]) {
    expect(await program.step(`${way} half server`)).toMatchObject({ server: true, client: true });
    expect(await program.step(`${way} half client`)).toMatchObject({ server: true, client: true });
    expect(await program.step(`${way} full server`)).toMatchObject({ client: true });
    expect(await program.step(`${way} full client`)).toMatchObject({ server: true });
    // Node may end a connection in order before it resets it; what must not happen is that nobody is told.
    expect(await program.step(`${way} reset server`)).toHaveProperty("client");
    expect(await program.step(`${way} reset client`)).toHaveProperty("server");
  }
  expect(await program.exited).toEqual({ code: 0, signal: null });
}, 60_000);

test("node: a forwarded connection that ends and is reset in one moment does not keep the program from ending", async () => {
  await using live = await liveMesh();
  await using program = await Program.start("node", live.server, "endAndReset");
  await program.step("closed");
  expect(await program.exited).toEqual({ code: 0, signal: null });
}, 60_000);

test("the package's classes and functions have the names that users know, in stack traces, too", async () => {
  const built = await builtPackage();
  const program = `import * as sdk from ${JSON.stringify(built)};
    const wrong = Object.entries(sdk).filter(([name, each]) => typeof each === "function" && each.name !== name);
    try { await sdk.connect({ url: "nats://127.0.0.1:1", credentials: "/no/such/file" }); }
    catch (error) { console.log(JSON.stringify({ wrong: wrong.map(([name, each]) => [name, each.name]), thrown: error.constructor.name, stack: error.stack })); }`;
  const ran = Bun.spawnSync(["node", "--input-type=module", "--eval", program], { cwd: ROOT });
  const { wrong, thrown, stack } = JSON.parse(ran.stdout.toString());
  expect([wrong, thrown]).toEqual([[], "InvalidRequestError"]);
  expect(stack).toStartWith("InvalidRequestError: ");
  expect(stack).toMatch(/at (async )?(Module\.)?connect /);
}, 120_000);

test("each file that the package names for a bundler is there, and none is a source", async () => {
  const built = await builtPackage();
  const text = await Bun.file(built).text();
  const named = [...text.matchAll(/new URL\("([^"]+)", import\.meta\.url\)/g)].map(([, name]) => name ?? "");
  expect(named).toEqual(["./worker.js"]);
  for (const name of named) expect(await Bun.file(join(dirname(built), name)).exists()).toBe(true);
  for (const file of [built, join(dirname(built), "worker.js")])
    expect((await Bun.file(file).text()).match(/["'`][^"'`\n]*\.ts["'`]/g)).toBe(null);
}, 120_000);

/** A program that acquires and then ends by `end`, bundled with the package as `name` in `folder`. */
async function bundleProgram(folder: string, name: string, end: string, how: Partial<Bun.BuildConfig>) {
  const built = await builtPackage();
  // Within reach of the package's own packages.
  const source = await mkdtemp(join(dirname(built), "bundle-"));
  try {
    const entry = join(source, "program.mjs");
    await Bun.write(
      entry,
      `import { connect } from ${JSON.stringify(built)};
        async function main() {
          const mesh = await connect({ url: process.env.URL, credentials: process.env.CREDENTIALS });
          const box = await mesh.acquire({ image: "host" });
          console.log((await box.exec("echo here")).stdout.text.trim());
          ${end};
        }
        main();`,
    );
    await Bun.build({ entrypoints: [entry], outdir: folder, target: "node", naming: name, ...how });
  } finally {
    await rm(source, { recursive: true });
  }
}

/** Runs it in Node; what it says on stderr. It has acquired, and left nothing. */
async function runBundle(file: string): Promise<string> {
  await using live = await liveMesh();
  const env = { ...process.env, URL: live.server.url, CREDENTIALS: credentialsOf(live.server) };
  const ran = Bun.spawn(["node", file], { env, stdout: "pipe", stderr: "pipe" });
  expect(await new Response(ran.stdout).text()).toBe("here\n");
  const said = await new Response(ran.stderr).text();
  expect(await ran.exited).toBe(0);
  expect(live.provider.made.size).toBe(0);
  return said;
}

test("a bundle with only the thread's file beside it renews, and leaves nothing when its process exits", async () => {
  // Out of reach of any package.
  await using folder = await scratch();
  await bundleProgram(folder.path, "program.mjs", "process.exit(0)", { format: "esm" });
  await copyFile(join(dirname(await builtPackage()), "worker.js"), join(folder.path, "worker.js"));
  await Bun.write(join(folder.path, "package.json"), '{"type":"module"}');
  expect(await runBundle(join(folder.path, "program.mjs"))).toBe("");
}, 120_000);

test("a CommonJS bundle, which does not know its own file, acquires and says what it lacks", async () => {
  await using folder = await scratch();
  // Bun would write the address in; esbuild and others leave it undefined.
  const define = { "import.meta.url": "undefined" };
  await bundleProgram(folder.path, "program.cjs", "await mesh.close()", { format: "cjs", define });
  expect(await runBundle(join(folder.path, "program.cjs"))).toContain("no thread for renewals");
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
