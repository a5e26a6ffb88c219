// Connecting is given up at once, at whatever stage the server has fallen silent.
import { expect, test } from "bun:test";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { testServer } from "../../../broker/server/testing.ts";
import { Program, type Runtime } from "../../../sdk/typescript/testing/harness.ts";

/** A port whose queue of connections is full, so that the kernel answers no other: its number, then until stdin ends. */
const FULL = `
import socket, sys
listener = socket.create_server(("127.0.0.1", 0), backlog=0)
held = [socket.socket() for _ in range(4)]
for each in held:
    each.setblocking(False)
    each.connect_ex(listener.getsockname())
print(listener.getsockname()[1], flush=True)
sys.stdin.read()
`;

for (const runtime of ["bun", "node"] satisfies Runtime[]) {
  test(`${runtime}: an aborted connect ends as canceled while dialling, before INFO, TLS and the answer to CONNECT, and leaves no socket and no timer`, async () => {
    const full = spawn("python3", ["-c", FULL], { stdio: ["pipe", "pipe", "inherit"] });
    try {
      const [port] = await once(full.stdout, "data");
      await using server = await testServer();
      const env = { FULL: `nats://127.0.0.1:${String(port).trim()}` };
      await using program = await Program.start(runtime, server, "abortConnect", env);
      const stages = ["before INFO", "before TLS", "before the answer to CONNECT"];
      for (const stage of ["dialling", ...stages.flatMap((each) => [`at once ${each}`, each])])
        expect(await program.step(stage)).toEqual({ step: stage, code: "canceled", cause: "enough" });
      expect(await program.step("left")).toEqual({ step: "left", timers: 0 });
      expect(await program.exited).toEqual({ code: 0, signal: null });
    } finally {
      full.stdin.end();
    }
  }, 60_000);
}
