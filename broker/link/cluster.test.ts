// Records with three copies, on a real cluster whose leader is killed.
import { expect, test } from "bun:test";
import { until } from "../server/testing.ts";
import { testCluster } from "../server/testing-cluster.ts";
import { openRecords } from "./records.ts";

const QUICK = { reconnect: { firstMs: 10, baseMs: 50, maxMs: 200 } };
const body = (text: string) => Buffer.from(text);

test("kill -9 of the leader in the midst of writes: none that was acknowledged is lost, the writer goes on, and is no stranger to itself", async () => {
  await using cluster = await testCluster();
  // To one that does not lead, so that the connection stays and only what was on its way is lost; and to the leader.
  for (const beside of [true, false]) {
    const where = {
      stream: `REC_${beside}`,
      subjectPrefix: `rec.v1.${beside}`,
      replicas: 3,
      timeoutMs: 60_000,
    };
    const scout = await cluster.nodes[0]?.pool({ urls: cluster.urls, ...QUICK });
    if (scout === undefined) throw new Error("no node");
    await (await openRecords(scout, where)).close();
    const leader = await cluster.leaderOf(where.stream, scout);
    const other = cluster.nodes.find((node) => node !== leader);
    const first = beside ? other : leader;
    if (first === undefined) throw new Error("no node");
    const link = await first.pool({ urls: [first.url, ...cluster.urls], ...QUICK });
    const records = await openRecords(link, where);
    const stored = new Map<string, string>();
    const failed: unknown[] = [];
    const writes: Promise<void>[] = [];
    for (let i = 0; i < 4_000; i++) {
      const [key, text] = [`k-${i % 400}`, String(i)];
      writes.push(
        records.put(key, body(text)).then(
          () => void stored.set(key, text),
          (error: unknown) => void failed.push(error),
        ),
      );
      if (i === 2_000) {
        await until("it is under way", () => stored.size > 50 || failed.length > 0);
        await leader.kill();
      }
    }
    await Promise.all(writes);
    expect(failed).toEqual([]);
    const loaded = [...(await records.load())].map(([key, data]) => [key, Buffer.from(data).toString()]);
    expect(Object.fromEntries(loaded)).toEqual(Object.fromEntries(stored));
    await records.close();
    await leader.restart();
  }
}, 120_000);

test("a leader that hands over while writes stream in leaves gaps in what was on its way, which are filled", async () => {
  await using cluster = await testCluster();
  const link = await cluster.nodes[0]?.pool({ urls: cluster.urls, ...QUICK });
  if (link === undefined) throw new Error("no node");
  const records = await openRecords(link, {
    stream: "REC",
    subjectPrefix: "rec.v1.rec",
    replicas: 3,
    timeoutMs: 60_000,
  });
  const failed: unknown[] = [];
  let stored = 0;
  let stop = false;
  const writeOn = async (lane: number): Promise<void> => {
    for (let i = 0; !stop && failed.length === 0; i++) {
      await records.put(`lane-${lane}`, body(String(i))).then(
        () => stored++,
        (error: unknown) => failed.push(error),
      );
    }
  };
  const lanes = Array.from({ length: 200 }, (_, lane) => writeOn(lane));
  for (let handOver = 0; handOver < 6; handOver++) {
    const before = stored;
    await until("it writes", () => failed.length > 0 || stored > before + 500, 60_000);
    link.publish("$JS.API.STREAM.LEADER.STEPDOWN.REC", new Uint8Array(0));
  }
  const before = stored;
  await until("it goes on", () => failed.length > 0 || stored > before + 500, 60_000);
  stop = true;
  await Promise.all(lanes);
  expect(failed).toEqual([]);
  await records.close();
}, 120_000);
