// The ways out of a process, with real processes, in Bun from the sources and in Node from the built package.
import { expect, test } from "bun:test";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../../broker/server/testing.ts";
import { type TestMesh, testMesh } from "../../pool/testing/mesh.ts";
import { Program, type Runtime } from "./testing/harness.ts";

const RUNTIMES: Runtime[] = ["bun", "node"];
const LONG = 60_000;

/** What the pool has, as soon as the program is gone: nothing is waited for. */
const left = (pool: TestMesh): number => pool.provider.made.size;

async function scratch() {
  const path = await mkdtemp(join(tmpdir(), "sandmesh-exit-"));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true }) };
}

for (const runtime of RUNTIMES) {
  test(
    `${runtime}: nothing is left when a program that closes returns`,
    async () => {
      await using pool = await testMesh();
      await using program = await Program.start(runtime, pool.server, "close");
      await program.step("closed");
      expect(left(pool)).toBe(0);
      expect(await program.exited).toEqual({ code: 0, signal: null });
      expect(pool.provider.created.length).toBe(3);
    },
    LONG,
  );

  test(
    `${runtime}: callbacks that throw at the loss are told as uncaught, and keep nobody from being told and nothing from being released`,
    async () => {
      await using pool = await testMesh();
      await using program = await Program.start(runtime, pool.server, "onLost");
      const { told, waiting, uncaught } = await program.step("released");
      expect(told).toEqual(["sandbox_lost", "sandbox_lost", "sandbox_lost"]);
      expect(waiting).toEqual(["sandbox_lost", "sandbox_lost", "sandbox_lost"]);
      expect((uncaught as string[]).sort()).toEqual(["of 0", "of 1", "of 2"]);
      expect(left(pool)).toBe(0);
      await program.step("closed");
      expect(await program.exited).toEqual({ code: 0, signal: null });
    },
    LONG,
  );

  test(
    `${runtime}: process.exit without a release leaves nothing, and its code`,
    async () => {
      await using pool = await testMesh();
      await using program = await Program.start(runtime, pool.server, "exit");
      expect(await program.exited).toEqual({ code: 3, signal: null });
      expect(pool.provider.created.length).toBe(3);
      expect(left(pool)).toBe(0);
    },
    LONG,
  );

  test(
    `${runtime}: an uncaught exception leaves nothing, and is shown`,
    async () => {
      await using pool = await testMesh();
      await using program = await Program.start(runtime, pool.server, "exception");
      expect((await program.exited).code).toBe(1);
      expect(program.stderr).toContain("the program's own");
      expect(pool.provider.created.length).toBe(3);
      expect(left(pool)).toBe(0);
    },
    LONG,
  );

  for (const way of ["exit", "exception"] as const) {
    test(
      `${runtime}: a worker thread that ends by ${way} leaves nothing, though its process goes on`,
      async () => {
        await using pool = await testMesh();
        await using program = await Program.start(runtime, pool.server, way, { END: "never" });
        const { code } = await program.step("worker ended");
        expect(left(pool)).toBe(0);
        expect(pool.provider.created.length).toBe(3);
        // Bun's is 0 for a rejection, with and without us.
        if (way === "exit") expect(code).toBe(3);
        if (way === "exception")
          expect(await program.step("error")).toEqual({ step: "error", message: "the program's own" });
      },
      LONG,
    );
  }

  for (const END of ["terminate", "exit", "exception"]) {
    test(
      `${runtime}: nothing renews for a worker thread that its main thread ended by ${END}`,
      async () => {
        await using pool = await testMesh();
        await using program = await Program.start(runtime, pool.server, "wait", { LEASE: "1s", END });
        // The process of one that was terminated goes on.
        await (END === "terminate" ? program.step("worker ended") : program.exited);
        expect(pool.provider.created.length).toBe(3);
        await until("all is reclaimed", () => left(pool) === 0, 20_000);
      },
      LONG,
    );
  }

  test(
    `${runtime}: a worker thread that stands still between two tasks, as a pool's do, loses nothing`,
    async () => {
      await using pool = await testMesh();
      const env = { LEASE: "4s", BLOCK_MS: "12000", END: "never" };
      await using program = await Program.start(runtime, pool.server, "blocked", env);
      expect(await program.step("blocked")).toEqual({ step: "blocked", states: ["leased"] });
      expect(await program.step("worker ended")).toEqual({ step: "worker ended", code: 0 });
      expect(left(pool)).toBe(0);
    },
    LONG,
  );

  for (const signal of ["SIGTERM", "SIGINT"] as const) {
    test(
      `${runtime}: ${signal} leaves nothing, and ends the program as it would have`,
      async () => {
        await using pool = await testMesh();
        await using program = await Program.start(runtime, pool.server, "wait");
        await program.step("acquired");
        expect(left(pool)).toBe(3);
        program.process.kill(signal);
        expect(await program.exited).toEqual({ code: null, signal });
        expect(left(pool)).toBe(0);
      },
      LONG,
    );
  }

  for (const way of ["exit", "exception", "rejection", "SIGTERM", "SIGINT", "SIGHUP"] as const) {
    test(
      `${runtime}: what is being acquired is not left by ${way}, whether it boots or waits for its turn`,
      async () => {
        await using pool = await testMesh({ maxBooting: 3 });
        pool.provider.script = () => ({ boot: "never" });
        await using program = await Program.start(runtime, pool.server, "acquiring", { WAY: way });
        const ann = await pool.caller();
        await until("three boot and two wait", async () => {
          return left(pool) === 3 && (await ann.status()).queued === 2;
        });
        const signal = way.startsWith("SIG") ? (way as NodeJS.Signals) : undefined;
        program.process.kill(signal ?? "SIGUSR2");
        const code = way === "exit" ? 3 : 1;
        expect(await program.exited).toEqual({ code: signal ? null : code, signal: signal ?? null });
        expect(left(pool)).toBe(0);
        expect((await ann.status()).queued).toBe(0);
      },
      LONG,
    );
  }

  test(
    `${runtime}: process.exit leaves nothing that was granted and not yet seen to be`,
    async () => {
      await using pool = await testMesh({ confirmMs: LONG });
      await using folder = await scratch();
      const GO = join(folder.path, "go");
      await using program = await Program.start(runtime, pool.server, "granted", { GO });
      const ann = await pool.caller();
      await until("both are granted", async () => (await ann.status()).states.granted === 2);
      await writeFile(GO, "");
      expect(await program.exited).toEqual({ code: 3, signal: null });
      expect(left(pool)).toBe(0);
    },
    LONG,
  );

  test(
    `${runtime}: process.exit leaves nothing that is being released`,
    async () => {
      await using pool = await testMesh();
      pool.provider.script = () => ({ removeFailures: 2 });
      await using program = await Program.start(runtime, pool.server, "releasing");
      expect(await program.exited).toEqual({ code: 3, signal: null });
      expect(pool.provider.created.length).toBe(3);
      expect(left(pool)).toBe(0);
    },
    LONG,
  );

  test(
    `${runtime}: a program's own signal handler decides`,
    async () => {
      await using pool = await testMesh();
      await using program = await Program.start(runtime, pool.server, "handler");
      await program.step("acquired");
      program.process.kill("SIGTERM");
      expect(await program.step("handled")).toMatchObject({ lost: false });
      expect(await program.exited).toEqual({ code: 5, signal: null });
      expect(left(pool)).toBe(0);
    },
    LONG,
  );

  test(
    `${runtime}: the leases of a killed program lapse`,
    async () => {
      await using pool = await testMesh();
      await using program = await Program.start(runtime, pool.server, "wait", { LEASE: "1s" });
      await program.step("acquired");
      program.process.kill("SIGKILL");
      await program.exited;
      await until("all is reclaimed", () => left(pool) === 0, 20_000);
    },
    LONG,
  );

  test(
    `${runtime}: what a killed program was acquiring ends with its lease, whether it boots or waits for its turn`,
    async () => {
      await using pool = await testMesh({ maxBooting: 3 });
      pool.provider.script = () => ({ boot: "never" });
      await using program = await Program.start(runtime, pool.server, "acquiring", { LEASE: "3s" });
      const ann = await pool.caller();
      await until("three boot and two wait", async () => {
        return left(pool) === 3 && (await ann.status()).queued === 2;
      });
      program.process.kill("SIGKILL");
      await program.exited;
      await until(
        "all is reclaimed",
        async () => left(pool) === 0 && (await ann.status()).queued === 0,
        20_000,
      );
    },
    LONG,
  );

  test(
    `${runtime}: an event loop that stands still for three leases loses nothing`,
    async () => {
      await using pool = await testMesh();
      const env = { LEASE: "4s", BLOCK_MS: "12000" };
      await using program = await Program.start(runtime, pool.server, "blocked", env);
      expect(await program.step("blocked")).toEqual({ step: "blocked", states: ["leased"] });
      await program.step("closed");
      expect(left(pool)).toBe(0);
    },
    LONG,
  );
}
