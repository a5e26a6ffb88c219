// The provider contract, with the sandboxes in this process and in hosts of their own.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as v from "valibot";
import { isAlive } from "../../../broker/server/testing.ts";
import { unheard } from "../../testing/request.ts";
import { describeProvider, type ProviderHarness, until } from "../contract.test-suite.ts";
import { FateSettings } from "./fate.ts";
import { createSimulatedProvider } from "./provider.ts";
import { LocalWorld } from "./world.ts";

const common = {
  spec: { image: "simulated" },
  badImage: "missing",
  unsupported: { spec: { volumes: [] as never[], entrypoint: true }, field: "spec.entrypoint" },
  request: unheard,
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
