import { expect, test } from "bun:test";
import { encode, runEventSubject } from "../../../broker/contract/index.ts";
import { testServer, until } from "../../../broker/server/testing.ts";
import { events } from "../events.ts";
import { Caller } from "./caller.ts";
import { hearLosses } from "./news.ts";

test("an event of a newer pool, or none at all, is passed over in silence, and the next one heard", async () => {
  await using server = await testServer();
  const faults: unknown[] = [];
  const link = await server.user("acme", "ann", { onError: (error) => faults.push(error) });
  const losses: string[][] = [];
  const caller = new Caller(link);
  const stop = hearLosses(
    caller,
    "r",
    (...loss) => losses.push(loss),
    () => [],
  );
  const read = events(caller, { run: "r" });
  const next = read.next();
  await link.flush();
  const pool = await server.pool();
  const lost = { what: "lost", at: new Date().toISOString(), run: "r", sandbox: "sb-1", reason: "evicted" };
  const subject = runEventSubject("acme", "r", "lost");
  for (const other of ["nonsense", "{", '{"what":"lost"}', JSON.stringify({ ...lost, what: "melted" })])
    pool.publish(subject, Buffer.from(other));
  pool.publish(subject, encode(lost));
  await until("the loss is heard", () => losses.length > 0);
  expect(losses).toEqual([["sb-1", "evicted"]]);
  expect((await next).value).toMatchObject(lost);
  expect(faults).toEqual([]);
  stop();
  await read.return();
});
