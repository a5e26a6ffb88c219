// A cluster of three nats-servers whose records have three copies: one of them is killed, the stream's leader or the one
// that all are connected to. Nothing is lost, and clients, daemons and pool move over by themselves.
import { expect, test } from "bun:test";
import pino from "pino";
import type { TestServer } from "../../broker/server/testing.ts";
import { type TestCluster, testCluster } from "../../broker/server/testing-cluster.ts";
import { openRecords } from "../../pool/records/jetstream.ts";
import { startPool } from "../../pool/service/pool.ts";
import { QUICK, SHORT } from "../../pool/testing/mesh.ts";
import { connect } from "../../sdk/typescript/mod.ts";
import { credentialsOf } from "../../sdk/typescript/testing/harness.ts";
import { eventually } from "../e2e/program.ts";
import { Daemons } from "../integration/sdk-typescript/mesh.ts";
import { counted, settled } from "./mesh.ts";

const log = pino({ level: "silent" });

async function startMesh(cluster: TestCluster) {
  const [node] = cluster.nodes;
  if (node === undefined) throw new Error("no node");
  const link = await node.pool({ urls: cluster.urls, reconnect: QUICK });
  const provider = new Daemons();
  const pool = await startPool({
    link,
    store: await openRecords(link, log, { replicas: 3 }),
    minter: node.keys,
    providers: [provider],
    daemonUrls: cluster.urls,
    // Choosing a leader takes some seconds, in which no record can be written.
    limits: { ...SHORT, confirmMs: 30_000 },
    log,
  });
  const url = cluster.urls.join(",");
  const client = await connect({ url, credentials: credentialsOf(node), handleSignals: false, lease: "15s" });
  return { pool, link, provider, client };
}

const KILLED: [string, (cluster: TestCluster, leader: TestServer) => TestServer | undefined][] = [
  ["the stream's leader", (_, leader) => leader],
  ["the one that all are connected to", ({ nodes }) => nodes[0]],
];

test.each(KILLED)(
  "%s killed in the middle of a burst and of commands: nothing is lost",
  async (_, choose) => {
    await using cluster = await testCluster();
    const { pool, link, provider, client } = await startMesh(cluster);
    try {
      const boxes = await client.acquireMany(3, { image: "host" });
      const [box] = boxes;
      if (box === undefined) throw new Error("none acquired");
      const running = boxes.map((each, i) => each.exec(counted(`${each.id}.log`, 3, i)));
      await eventually("they began", async () => (await box.exec(`test -s ${box.id}.log`)).ok);
      const leader = await cluster.leaderOf("pool", link);
      const burst = Array.from({ length: 6 }, () =>
        settled(client.acquire({ image: "host", timeout: "60s" })),
      );
      await choose(cluster, leader)?.kill();
      const more = (await Promise.all(burst)).map(({ value, error }) => {
        if (value === undefined) throw error;
        return value;
      });
      expect((await Promise.all(running)).map(({ exitCode }) => exitCode)).toEqual([0, 1, 2]);
      const all = [...boxes, ...more];
      expect(new Set(all.map(({ id }) => id)).size).toBe(9);
      for (const each of all)
        expect((await each.exec("echo here", { timeout: "20s" })).stdout.text).toBe("here\n");
      for (const each of boxes)
        expect((await each.exec(`cat ${each.id}.log`)).stdout.text).toBe("begun\nended\n");
      expect((await client.list()).map(({ state }) => state)).toEqual(Array(9).fill("leased"));
      expect(all.map(({ lost }) => lost)).toEqual(Array(9).fill(undefined));
      await Promise.all(all.map((each) => each.release()));
      expect(provider.made.size).toBe(0);
    } finally {
      await client.close();
      await provider.end();
      await pool.close();
    }
  },
  150_000,
);
