// The command line is interrupted while it acquires: with the provider's double, whose sandboxes boot as long as is needed.
import { expect, test } from "bun:test";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../../broker/server/testing.ts";
import { testMesh } from "../../pool/testing/mesh.ts";
import { credentialsOf } from "../../sdk/typescript/testing/harness.ts";
import { PROGRAM } from "./program.ts";

const BOOTING = 2;
const COMMANDS: [command: string[], asked: number][] = [
  [["acquire", "host"], 1],
  [["acquire", "--run", "named", "-n", "4", "host"], 4],
  [["run", "host", "--", "true"], 1],
];
const ENDS = ["SIGINT", "SIGTERM", "SIGHUP", "SIGINT SIGTERM"];

for (const [command, asked] of COMMANDS) {
  test.each(ENDS)(
    `sandmesh ${command.join(" ")} leaves nothing when it has returned after %s`,
    async (signals) => {
      await using pool = await testMesh({ maxBooting: BOOTING });
      pool.provider.script = () => ({ boot: "never", removeFailures: 2 });
      const folder = await mkdtemp(join(tmpdir(), "sandmesh-cli-"));
      try {
        const credentials = join(folder, "user.creds");
        await writeFile(credentials, credentialsOf(pool.server), { mode: 0o600 });
        const child = Bun.spawn([...PROGRAM, ...command], {
          env: { ...process.env, SANDMESH_URL: pool.server.url, SANDMESH_CREDS: credentials },
          stdio: ["ignore", "pipe", "pipe"],
          timeout: 30_000,
        });
        const ann = await pool.caller();
        const booting = Math.min(BOOTING, asked);
        await until("it is acquiring", async () => {
          return pool.provider.made.size === booting && (await ann.status()).queued === asked - booting;
        });
        for (const signal of signals.split(" ")) child.kill(signal as NodeJS.Signals);
        expect(await child.exited).toBe(130);
        expect(pool.provider.made.size).toBe(0);
        expect((await ann.status()).queued).toBe(0);
        expect(await new Response(child.stdout).text()).toBe("");
      } finally {
        await rm(folder, { recursive: true });
      }
    },
    60_000,
  );
}
