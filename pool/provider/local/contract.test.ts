// The local provider passes the contract that all providers pass.
import { randomName } from "../../../broker/contract/index.ts";
import { describeProvider } from "../contract.test-suite.ts";
import { kill } from "./processes.ts";
import { Bench, requestFor } from "./testing.ts";

describeProvider("local", async () => {
  const bench = await Bench.make();
  return {
    provider: bench.provider,
    spec: { image: "host" },
    badImage: `/no/such/image-${randomName(6)}`,
    unsupported: { spec: { network: "policy:web" }, field: "spec.network" },
    request: requestFor,
    crash: async (sandbox) => kill(await bench.first(sandbox)),
    leftBehind: () => bench.left(),
    restart: () => bench.restart(),
    close: () => bench[Symbol.asyncDispose](),
  };
});
