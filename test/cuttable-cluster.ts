// For tests: a cluster of three real nats-servers, of which one can be cut off from the others, and not from its clients.
import { type TestCluster, testCluster } from "../broker/server/testing-cluster.ts";
import { type Cuttable, cuttable } from "./cuttable.ts";

export interface CuttableCluster extends AsyncDisposable {
  readonly cluster: TestCluster;
  /** Cuts a node off, by its place in `nodes`, until `heal`. */
  cutOff(node: number): { heal(): void };
}

export async function cuttableCluster(): Promise<CuttableCluster> {
  const ways: { ends: readonly number[]; way: Cuttable }[] = [];
  const cluster = await testCluster({
    way: async (from, to, port) => {
      const way = await cuttable(port);
      ways.push({ ends: [from, to], way });
      return Number(new URL(way.url).port);
    },
  });
  return {
    cluster,
    cutOff(node) {
      const blocks = ways.filter(({ ends }) => ends.includes(node)).map(({ way }) => way.block());
      return {
        heal() {
          for (const { open } of blocks) open();
        },
      };
    },
    async [Symbol.asyncDispose]() {
      await cluster[Symbol.asyncDispose]();
      await Promise.all(ways.map(({ way }) => way[Symbol.asyncDispose]()));
    },
  };
}
