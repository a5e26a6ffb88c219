// The built package in Node: the same wire, another runtime.
import { expect, test } from "bun:test";
import { Program, type Runtime } from "../../../sdk/typescript/testing/harness.ts";
import { liveMesh } from "./mesh.ts";

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
