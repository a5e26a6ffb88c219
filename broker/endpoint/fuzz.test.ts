// Whatever stands in a request: nothing dies, each gets one typed answer, and a good request is answered after it.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { CONTROL_VERBS, decode, ERROR_CLASSES, encode, SANDBOX_VERBS } from "../contract/index.ts";
import { bodies } from "../contract/testing.ts";
import type { Link } from "../link/link.ts";
import { type TestServer, testServer } from "../server/testing.ts";
import { type Booted, boot, newId, PoolDouble, TENANT } from "./testing.ts";

let server: TestServer;
let pool: PoolDouble;
let user: Link;
let box: Booted;
beforeAll(async () => {
  server = await testServer();
  pool = await PoolDouble.start(server);
  user = await server.user(TENANT, "ann");
  box = await boot(server, user);
  box.executor.script = (command) => command.exit();
});
afterAll(async () => {
  await box.endpoint.close();
  await server.close();
});

const CASES = 60;

test.each(Object.keys(SANDBOX_VERBS))("%s: nothing dies of a fuzzed body", async (verb) => {
  const seed = [...verb].reduce((sum, char) => sum * 31 + char.charCodeAt(0), 7) >>> 0;
  for (const body of bodies(seed, CASES)) {
    const what = `${verb}, seed ${seed}: ${Buffer.from(body).toString("hex").slice(0, 200)}`;
    const message = await user.request(box.sandbox, box.caller.subject(verb), body, { timeoutMs: 5_000 });
    const answer = decode(message.data);
    const error = Object(answer.error);
    const typed = answer.error === undefined || Object.hasOwn(ERROR_CLASSES, error.code);
    expect([what, typed]).toEqual([what, true]);
    user.publish(box.caller.subject("credit"), body);
  }
  expect(await box.caller.ask("ping")).toMatchObject({ sandbox: box.sandbox });
});

test("nor does the daemon end, or change hands, by a fuzzed word of the pool", async () => {
  for (const verb of Object.keys(CONTROL_VERBS)) {
    for (const body of bodies(11, CASES)) {
      const value = body.length < 200 ? { junk: Buffer.from(body) } : { generation: -1, lease: "x" };
      pool.word(box.sandbox, verb, { ...value, version: 1 });
    }
  }
  expect(await box.caller.ask("ping")).toMatchObject({ sandbox: box.sandbox, generation: 1 });
});

test("fields of the right type and senseless values are typed answers", async () => {
  const body = {
    version: 1,
    id: newId(),
    transfer: newId(),
    path: "/",
    from: "/a",
    to: "/b",
    session: "s",
    signal: "SIGFOO",
    argv: [""],
    offset: Number.MAX_SAFE_INTEGER,
    rows: 1,
    cols: 1,
    data: Buffer.alloc(0),
    last: false,
    credit_bytes: 0,
  };
  for (const verb of Object.keys(SANDBOX_VERBS)) {
    const subject = box.caller.subject(verb);
    const message = await user.request(box.sandbox, subject, encode(body), { timeoutMs: 5_000 });
    expect([verb, typeof decode(message.data)]).toEqual([verb, "object"]);
  }
});
