// What someone can do who has a sandbox's credential: what the server does not let them do, and what is theirs. (How the
// credential is kept from commands: test/chaos/hostile-commands.test.ts. That the pool ends a sandbox on whose key there
// is a second connection: pool/service/tampered.test.ts.)
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { buildDaemon } from "../../agent/build.ts";
import { until } from "../../agent/exec/testing.ts";
import { type TestDaemon, type TestMesh, testMesh } from "../../agent/testing.ts";
import { decode, encode, newUuidV7, sandboxSubject } from "../../broker/contract/index.ts";
import type { Link, Message } from "../../broker/link/link.ts";
import { type TestServer, testServer } from "../../broker/server/testing.ts";

const TENANT = "acme";
let server: TestServer;
let mesh: TestMesh;
let robbed: TestDaemon;
let other: TestDaemon;
let thief: Link;
const refused: string[] = [];
beforeAll(async () => {
  const agent = `${buildDaemon()}/sandmesh-agent`;
  server = await testServer();
  mesh = await testMesh(server);
  [robbed, other] = await Promise.all([mesh.start({ argv: [agent] }), mesh.start({ argv: [agent] })]);
  // The same rights as the daemon's own credential, since they are the sandbox's and not the key's.
  thief = await server.sandbox(TENANT, robbed.sandbox, { onError: (error) => refused.push(String(error)) });
}, 60_000);
afterAll(() => mesh[Symbol.asyncDispose]());

const forged = (message: Message, incarnation: unknown): Uint8Array =>
  encode({
    incarnation,
    ...decode(message.data),
    type: "end",
    outcome: { type: "exited", code: 0 },
    stdout: Buffer.from("forged"),
    totals: { stdout: { total_bytes: 6, dropped_bytes: 0 }, stderr: { total_bytes: 0, dropped_bytes: 0 } },
    duration_ms: 1,
  });

/** What the server refuses of what the thief does meanwhile. */
async function refusals(act: () => void): Promise<string[]> {
  refused.length = 0;
  act();
  await thief.flush();
  return [...refused];
}

describe("the server refuses who has one sandbox's credential", () => {
  test("to hear or send requests to another sandbox, also of its own tenant", async () => {
    const subject = sandboxSubject(TENANT, other.sandbox, "exec");
    expect(await refusals(() => thief.subscribe(subject, () => {}))).toHaveLength(1);
    expect(await refusals(() => thief.publish(subject, encode({ version: 1, argv: ["true"] })))).toHaveLength(
      1,
    );
    // Nor can it give itself commands by the wire.
    const own = sandboxSubject(TENANT, robbed.sandbox, "exec");
    expect(await refusals(() => thief.publish(own, encode({ version: 1, argv: ["true"] })))).toHaveLength(1);
  });

  test("to answer in another sandbox's or the pool's name", async () => {
    for (const responder of [other.sandbox, "pool"]) {
      const subject = `rep.v1.${TENANT}.${responder}.ann.x.1`;
      expect(await refusals(() => thief.publish(subject, encode({})))).toHaveLength(1);
    }
  });

  test("to hear what users are answered, and to speak as the pool: no grant, release, renewal or loss", async () => {
    expect(await refusals(() => thief.subscribe(`rep.v1.${TENANT}.*.ann.>`, () => {}))).toHaveLength(1);
    for (const subject of [
      `ctl.v1.${TENANT}.${robbed.sandbox}.release`,
      `ctl.v1.${TENANT}.${other.sandbox}.renew`,
      `evt.v1.${TENANT}.pool.draining`,
      `evt.v1.${TENANT}.sbx.${other.sandbox}.ready`,
      `enr.v1.${TENANT}.${robbed.sandbox}`,
      `pool.v1.${TENANT}.acquire`,
    ])
      expect([subject, (await refusals(() => thief.publish(subject, encode({})))).length]).toEqual([
        subject,
        1,
      ]);
  });

  test("and the other sandbox works on, unheard", async () => {
    const end = await other.exec({ shell: "echo mine" });
    expect(Buffer.from(end.stdout ?? []).toString()).toBe("mine\n");
  });
});

test("what is not held: the requests to its own sandbox can be heard, and answered first", async () => {
  const heard: string[] = [];
  const { incarnation } = await robbed.request("info", {});
  const subject = sandboxSubject(TENANT, robbed.sandbox, "exec");
  const subscription = thief.subscribe(subject, (message) => {
    heard.push(String(decode(message.data).shell));
    message.respond(forged(message, incarnation));
  });
  await thief.flush();
  // The daemon's answer takes at least the command's time: the forged one comes first.
  const end = await robbed.exec({ id: newUuidV7(), shell: "sleep 0.2; echo true" });
  expect([heard, Buffer.from(end.stdout ?? []).toString()]).toEqual([["sleep 0.2; echo true"], "forged"]);
  subscription.unsubscribe();
  await thief.flush();
  await until("the daemon's own answers are back", async () => {
    const after = await robbed.exec({ shell: "echo true" });
    return Buffer.from(after.stdout ?? []).toString() === "true\n";
  });
});
