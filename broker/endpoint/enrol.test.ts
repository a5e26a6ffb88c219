// A boot meets a server that goes and comes back.
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { testServer, until } from "../server/testing.ts";
import { subscribed } from "./enrol.ts";

const QUICK = { reconnect: { firstMs: 10, baseMs: 20, maxMs: 50 } };
const codeOf = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => "done",
    (error: { code: string }) => error.code,
  );

/** Only when it stands may nothing be answered any more: the signal takes its time. */
async function stop(pid: number): Promise<void> {
  process.kill(pid, "SIGSTOP");
  const state = () => readFileSync(`/proc/${pid}/stat`, "latin1").split(") ").at(-1)?.[0];
  await until("it stands", () => state() === "T");
}

test("a server that dies while it takes the subscriptions costs no boot", async () => {
  await using server = await testServer();
  const link = await server.sandbox("acme", "sb-1", QUICK);
  const heard: string[] = [];
  link.subscribe("sbx.v1.acme.sb-1.*", ({ subject }) => heard.push(subject));
  await stop(server.server.pid);
  const plain = codeOf(link.flush());
  const patient = codeOf(subscribed(link, performance.now() + 20_000));
  await server.kill();
  await server.restart();
  // What a flush alone says, and what a boot would have ended with.
  expect(await plain).toBe("connection_failed");
  expect(await patient).toBe("done");
  const user = await server.user("acme", "ann");
  user.publish("sbx.v1.acme.sb-1.ping", new Uint8Array(0));
  await user.flush();
  await link.flush();
  expect(heard).toEqual(["sbx.v1.acme.sb-1.ping"]);
});

test("it ends at its deadline where no server comes back, and with the connection", async () => {
  await using server = await testServer();
  const link = await server.sandbox("acme", "sb-1", QUICK);
  await stop(server.server.pid);
  expect(await codeOf(subscribed(link, performance.now() + 20))).toBe("deadline_exceeded");
  const closed = codeOf(subscribed(link, performance.now() + 20_000));
  // Killed as it stands: one that went on might still answer.
  await server.kill();
  await link.close();
  expect(await closed).toBe("connection_failed");
});
