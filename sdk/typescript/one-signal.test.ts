// Many calls with one AbortSignal, in a process of their own.
import { expect, test } from "bun:test";
import { testMesh } from "../../pool/testing/mesh.ts";
import { Program } from "./testing/harness.ts";

for (const runtime of ["bun", "node"] as const) {
  test(`${runtime}: that many wait with one signal is no leak to warn of, and each hears it`, async () => {
    await using pool = await testMesh();
    pool.provider.script = ({ spec }) => (spec.image === "host" ? {} : { boot: "never" });
    await using program = await Program.start(runtime, pool.server, "oneSignal");
    expect(await program.step("aborted")).toEqual({ step: "aborted", all: 160, codes: ["canceled"] });
    await program.step("closed");
    expect(await program.exited).toEqual({ code: 0, signal: null });
    expect(program.stderr).toBe("");
    expect(pool.provider.made.size).toBe(0);
  }, 60_000);
}
