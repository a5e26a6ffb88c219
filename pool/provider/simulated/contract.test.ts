// The provider contract, with the sandboxes in this process and in hosts of their own.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as v from "valibot";
import type { SandboxSpec } from "../../../broker/contract/index.ts";
import { createOperatorKeys, keyRingOf } from "../../../broker/server/operator.ts";
import { isAlive } from "../../../broker/server/testing.ts";
import { describeProvider, type ProviderHarness, until } from "../contract.test-suite.ts";
import { FateSettings } from "./fate.ts";
import { createSimulatedProvider } from "./provider.ts";
import { LocalWorld } from "./world.ts";

const keys = keyRingOf(createOperatorKeys());

/** Nobody listens on port 1: these daemons go on trying, as they would while their server starts. */
const request = (sandbox: string, spec: SandboxSpec, maxLifeMs: number) => ({
  sandbox,
  tenant: "acme",
  run: "run-1",
  spec,
  maxLifeMs,
  bootstrap: {
    version: 1 as const,
    urls: ["nats://127.0.0.1:1"],
    tenant: "acme",
    sandbox,
    generation: 1,
    ...keys.mintBootstrap({ tenant: "acme", sandbox, ttlMs: 60_000 }),
    boot_timeout_ms: 600_000,
  },
});

const common = {
  spec: { image: "simulated" },
  badImage: "missing",
  unsupported: { spec: { volumes: [] as never[], entrypoint: true }, field: "entrypoint" },
  request,
};

describeProvider("simulated, in process", async (): Promise<ProviderHarness> => {
  const world = new LocalWorld(v.parse(FateSettings, {}));
  const open = () => createSimulatedProvider({}, [world]);
  let provider = await open();
  return {
    ...common,
    get provider() {
      return provider;
    },
    crash: (sandbox) => provider.crash(sandbox),
    leftBehind: async () => (await world.list()).map(({ sandbox }) => sandbox),
    restart: async () => {
      provider = await open();
      return provider;
    },
    close: async () => {
      await provider.close();
      await world.end();
    },
  };
});

describeProvider("simulated, in hosts", async (): Promise<ProviderHarness> => {
  const stateDir = mkdtempSync(join(tmpdir(), "sandmesh-simulated-"));
  const open = () => createSimulatedProvider({ hosts: 2, stateDir });
  let provider = await open();
  const pids = () =>
    [0, 1].flatMap((i) => {
      try {
        return [Number(readFileSync(join(stateDir, `host-${i}.sock.pid`), "utf8"))];
      } catch {
        return []; // That host was never needed.
      }
    });
  return {
    ...common,
    get provider() {
      return provider;
    },
    crash: (sandbox) => provider.crash(sandbox),
    leftBehind: async () => (await provider.list(AbortSignal.timeout(5_000))).map(({ sandbox }) => sandbox),
    restart: async () => {
      provider = await open();
      return provider;
    },
    close: async () => {
      await provider.close();
      for (const pid of pids()) if (isAlive(pid)) process.kill(pid, "SIGTERM");
      await until("the hosts' end", () => pids().every((pid) => !isAlive(pid)));
      rmSync(stateDir, { recursive: true });
    },
  };
});
