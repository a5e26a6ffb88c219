// The renewing thread begins before it is needed: by itself, soon after connecting, where nothing else was asked.
import { expect, test } from "bun:test";
import { copyFile, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type TestServer, until } from "../../broker/server/testing.ts";
import { testMesh } from "../../pool/testing/mesh.ts";
import { connectAs } from "./connect.ts";
import type { Mesh } from "./mesh.ts";
import { builtPackage, connectTo, credentialsOf, Program, type Runtime } from "./testing/harness.ts";

const RUNTIMES: Runtime[] = ["bun", "node"];
const LONG = 60_000;

interface Connections {
  connections: { name?: string }[];
}

/** Whose renewing threads are connected, by what the server lists. */
async function renewing(server: TestServer): Promise<string[]> {
  const answer = await fetch(`http://127.0.0.1:${server.server.monitorPort}/connz`);
  const { connections } = (await answer.json()) as Connections;
  return connections.flatMap(({ name = "" }) =>
    name.endsWith(" renewals") ? [name.split(" ")[0] ?? ""] : [],
  );
}

for (const runtime of RUNTIMES) {
  test(
    `${runtime}: a mesh that is connected has its renewing thread before it acquires, which ends with its process`,
    async () => {
      await using pool = await testMesh({}, { monitor: 0 });
      for (const signal of ["SIGUSR2", "SIGTERM"] as const) {
        await using program = await Program.start(runtime, pool.server, "idle");
        await program.step("connected");
        await until("it has its thread", async () => (await renewing(pool.server)).length === 1);
        program.process.kill(signal);
        const closed = signal === "SIGUSR2";
        expect(await program.exited).toEqual({ code: closed ? 0 : null, signal: closed ? null : signal });
        expect(program.stderr).toBe("");
        await until("its thread is gone", async () => (await renewing(pool.server)).length === 0);
      }
      expect(pool.provider.created.length).toBe(0);
    },
    LONG,
  );
}

test("a mesh that only looks has no renewing thread, until it acquires", async () => {
  await using pool = await testMesh({}, { monitor: 0 });
  const { server } = pool;
  const looks: ((mesh: Mesh) => unknown)[] = [
    (mesh) => mesh.list(),
    (mesh) => mesh.status(),
    (mesh) => mesh.events(),
    (mesh) => mesh.sandbox("sb-none"),
    (mesh) => mesh.release("sb-none"),
    (mesh) => mesh.renew("none").catch(() => undefined),
    (mesh) => mesh.drain().catch(() => undefined),
  ];
  await using all = new AsyncDisposableStack();
  const looking: Mesh[] = [];
  for (const [i, look] of looks.entries()) {
    const mesh = all.use(await connectTo(server, {}, `bob${i}`));
    looking.push(mesh);
    await look(mesh);
  }
  // Connected after them all: where she has hers, they would have theirs.
  all.use(await connectTo(server));
  await until("ann has her thread", async () => (await renewing(server)).includes("ann"));
  expect(await renewing(server)).toEqual(["ann"]);
  await looking[0]?.acquire({ image: "host" });
  await until("bob has his", async () => (await renewing(server)).includes("bob0"));
});

test("a mesh that is closed before its renewing thread has begun leaves none", async () => {
  await using pool = await testMesh({}, { monitor: 0 });
  const { server } = pool;
  for (let i = 0; i < 5; i++) await (await connectTo(server, {}, "bob")).close();
  await using _ = await connectTo(server);
  await until("ann has her thread", async () => (await renewing(server)).includes("ann"));
  expect(await renewing(server)).toEqual(["ann"]);
});

test(
  "a server that is away where the renewing thread begins is waited for",
  async () => {
    await using pool = await testMesh({}, { monitor: 0 });
    const { server } = pool;
    await using mesh = await connectTo(server);
    await server.kill();
    await Bun.sleep(500);
    await server.restart();
    await until("it has its thread", async () => (await renewing(server)).includes("ann"));
    await (await mesh.acquire({ image: "host" })).release();
  },
  LONG,
);

async function expectToldAtAcquire(server: TestServer, env: Record<string, string>): Promise<void> {
  await using program = await Program.start("node", server, "warned", env);
  expect(await program.step("connected")).toMatchObject({ warnings: [] });
  const { warnings } = await program.step("acquired");
  expect(warnings).toEqual([expect.stringContaining("no thread for renewals")]);
  expect(await program.exited).toEqual({ code: 0, signal: null });
}

test(
  "that the renewing thread's file is missing is told where one is wanted, and not before",
  async () => {
    await using pool = await testMesh({}, { monitor: 0 });
    const built = await builtPackage();
    const folder = await mkdtemp(join(dirname(dirname(built)), "without-worker-"));
    try {
      const SDK = join(folder, "mod.mjs");
      await copyFile(built, SDK);
      await expectToldAtAcquire(pool.server, { SDK });
    } finally {
      await rm(folder, { recursive: true });
    }
  },
  LONG,
);

test(
  "a program that may have no threads connects and acquires, and is told so where one is wanted",
  async () => {
    await using pool = await testMesh({}, { monitor: 0 });
    await expectToldAtAcquire(pool.server, { NODE_OPTIONS: "--experimental-permission --allow-fs-read=*" });
  },
  LONG,
);

test("a renewing thread whose connection is refused for good is told, and leases are kept without it", async () => {
  await using pool = await testMesh();
  await using other = await testMesh();
  await using all = new AsyncDisposableStack();
  const warnings: string[] = [];
  const hear = ({ name, message }: Error): void => {
    if (name === "SandmeshWarning") warnings.push(message);
  };
  process.on("warning", hear);
  all.defer(() => void process.off("warning", hear));
  const folder = await mkdtemp(join(tmpdir(), "sandmesh-refused-"));
  all.defer(() => rm(folder, { recursive: true }));
  const credentials = join(folder, "user.creds");
  await writeFile(credentials, credentialsOf(pool.server));
  const mesh = all.use(
    await connectAs({ url: pool.server.url, credentials, handleSignals: false, lease: "1s" }, {}),
  );
  // The thread reads the file when it begins.
  await writeFile(credentials, credentialsOf(other.server));
  const box = await mesh.acquire({ image: "host" });
  await until("it is told", async () => warnings.length > 0);
  expect(warnings).toEqual([expect.stringContaining("no thread for renewals")]);
  await Bun.sleep(3_000);
  expect((await mesh.list()).map((view) => [view.sandbox, view.state])).toEqual([[box.id, "leased"]]);
});
