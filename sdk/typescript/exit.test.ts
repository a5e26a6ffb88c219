// The ways out of a process, with real processes, in Bun from the sources and in Node from the built package.
import { expect, test } from "bun:test";
import { until } from "../../broker/server/testing.ts";
import { type TestMesh, testMesh } from "../../pool/testing/mesh.ts";
import { Program, type Runtime } from "./testing/harness.ts";

const RUNTIMES: Runtime[] = ["bun", "node"];
const LONG = 60_000;

/** What the pool has, as soon as the program is gone: nothing is waited for. */
const left = (pool: TestMesh): number => pool.provider.made.size;

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
    `${runtime}: an event loop that stands still for three leases loses nothing`,
    async () => {
      await using pool = await testMesh();
      const env = { LEASE: "2s", BLOCK_MS: "6000" };
      await using program = await Program.start(runtime, pool.server, "blocked", env);
      expect(await program.step("blocked")).toEqual({ step: "blocked", states: ["leased"] });
      await program.step("closed");
      expect(left(pool)).toBe(0);
    },
    LONG,
  );
}
