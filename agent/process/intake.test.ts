// What the engine reads in the runtime's stead is what the runtime would have read.
import { afterAll, expect, test } from "bun:test";
import { createServer, connect as dial, type Socket } from "node:net";
import { seeded } from "../../broker/contract/testing.ts";
import type { OpenIntake } from "../../broker/link/intake.ts";
import type { Link } from "../../broker/link/link.ts";
import { type TestServer, testServer, until } from "../../broker/server/testing.ts";
import { testEngine } from "../exec/testing.ts";
import { intakeOf } from "./intake.ts";

const SUBJECT = "sbx.v1.acme.sb-1.write";
const LARGE = 256 * 1024;
const server: TestServer = await testServer();
afterAll(() => server.close());

/** The engine's, which counts what it has read, and how often it was given back. */
async function counted(): Promise<{ open: OpenIntake; read: () => number; closed: () => number }> {
  const open = intakeOf(await testEngine());
  let bytes = 0;
  let closed = 0;
  const count = (length: number): number => {
    bytes += Math.max(0, length);
    return length;
  };
  return {
    open: (socket, came) => {
      const intake = open(socket, (length) => came(count(length)));
      if (intake === undefined) return undefined;
      return {
        read: (into, least) => count(intake.read(into, least)),
        close: () => {
          closed++;
          intake.close();
        },
      };
    },
    read: () => bytes,
    closed: () => closed,
  };
}

const soon = { reconnect: { firstMs: 20, baseMs: 50, maxMs: 100 } };
const ask = (user: Link, text: string) =>
  user.request("sb-1", "sbx.v1.acme.sb-1.ping", Buffer.from(text), { timeoutMs: 10_000 });

test("large and small messages come whole and in order, whichever of the two reads them, and much goes out meanwhile", async () => {
  const random = seeded(7);
  const sizes = Array.from({ length: 200 }, () => {
    const kind = random();
    return kind < 0.6 ? LARGE : kind < 0.8 ? Math.floor(random() * 2 * LARGE) : Math.floor(random() * 100);
  });
  const bytes = sizes.map((size, i) => Buffer.alloc(size, `${i} MSG a 1 5\r\n`));
  const intake = await counted();
  const box = await server.sandbox("acme", "sb-1", { intake: intake.open });
  const user = await server.user("acme", "ann");
  let right = 0;
  let wrong = 0;
  let out = 0;
  user.subscribe("rep.v1.acme.sb-1.ann.out", ({ data }) => {
    out += data.length;
  });
  await user.flush();
  box.subscribe(SUBJECT, ({ data }) => {
    if (bytes[right + wrong]?.equals(data)) right++;
    else wrong++;
    box.publish("rep.v1.acme.sb-1.ann.out", Buffer.alloc(LARGE));
  });
  await box.flush();
  for (const [i, each] of bytes.entries()) {
    user.publish(SUBJECT, each);
    if (i % 20 === 19) await user.flush();
  }
  await until("all have come", () => right + wrong === bytes.length);
  expect(wrong).toBe(0);
  await until("all has gone out", () => out === bytes.length * LARGE);
  // Otherwise this tries the runtime alone, which no longer reads most of it.
  expect(intake.read()).toBeGreaterThan(bytes.reduce((sum, each) => sum + each.length, 0) / 4);
  await box.close();
});

test("a server that dies within a large message is noticed, and the link comes back", async () => {
  const intake = await counted();
  const box = await server.sandbox("acme", "sb-1", { intake: intake.open, ...soon });
  const user = await server.user("acme", "ann", soon);
  box.subscribe("sbx.v1.acme.sb-1.ping", (message) => message.respond(message.data));
  box.subscribe(SUBJECT, () => {});
  await box.flush();
  for (let round = 0; round < 3; round++) {
    const before = intake.read();
    const back = [box, user].map(
      (link) => new Promise<void>((done) => link.onStatus((connected) => connected && done())),
    );
    let sent = 0;
    // A few in flight all the time, until the engine reads.
    while (intake.read() === before) {
      for (let i = 0; i < 8; i++) user.publish(SUBJECT, Buffer.alloc(LARGE, sent++));
      await user.flush();
    }
    for (let i = 0; i < 32; i++) user.publish(SUBJECT, Buffer.alloc(LARGE));
    await server.kill();
    await server.restart();
    await Promise.all(back);
    await box.flush();
    expect(Buffer.from((await ask(user, `round ${round}`)).data).toString()).toBe(`round ${round}`);
  }
  await box.close();
});

test("where only small messages come the runtime reads again, which is sooner told of them", async () => {
  const intake = await counted();
  const box = await server.sandbox("acme", "sb-1", { intake: intake.open });
  const user = await server.user("acme", "ann");
  box.subscribe("sbx.v1.acme.sb-1.ping", (message) => message.respond(message.data));
  box.subscribe(SUBJECT, () => {});
  await box.flush();
  while (intake.read() === 0) {
    for (let i = 0; i < 8; i++) user.publish(SUBJECT, Buffer.alloc(LARGE));
    await user.flush();
  }
  // The first one may still be read by the engine.
  await ask(user, "1");
  const [read, closed] = [intake.read(), intake.closed()];
  expect(closed).toBeGreaterThan(0);
  for (let i = 0; i < 5; i++) expect(Buffer.from((await ask(user, `${i}`)).data).toString()).toBe(`${i}`);
  expect(intake.read()).toBe(read);
  await box.close();
});

test("a socket that is given back is the runtime's, and what was to be read to stays as it is", async () => {
  const peers: Socket[] = [];
  const listening = createServer((peer) => void peers.push(peer));
  await new Promise<void>((done) => listening.listen(0, "127.0.0.1", done));
  const address = listening.address();
  const socket = dial(typeof address === "object" && address !== null ? address.port : 0, "127.0.0.1");
  const heard: string[] = [];
  socket.on("data", (data) => heard.push(String(data)));
  await until("it is connected", () => peers.length === 1);
  const told: number[] = [];
  const intake = intakeOf(await testEngine())(socket, (length) => told.push(length));
  const into = Buffer.alloc(16);
  expect(intake?.read(into, 4)).toBe(0);
  peers[0]?.write("abcd");
  await until("the engine has read", () => told.length === 1);
  expect([told, into.toString("latin1", 0, 4), heard]).toEqual([[4], "abcd", []]);
  expect(intake?.read(into, 4)).toBe(0);
  intake?.close();
  peers[0]?.write("efgh");
  await until("the runtime has read", () => heard.length === 1);
  expect([told, into.toString("latin1", 0, 4), heard]).toEqual([[4], "abcd", ["efgh"]]);
  socket.destroy();
  listening.close();
});
