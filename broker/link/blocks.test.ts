import { expect, test } from "bun:test";
import { testServer } from "../server/testing.ts";
import { giveBlock, takeBlock } from "./blocks.ts";

const BYTES = 256 * 1024;

test("memory that is given back twice is not lent to two", () => {
  const block = takeBlock(BYTES);
  giveBlock(block.subarray(100));
  giveBlock(block);
  const [one, other] = [takeBlock(BYTES), takeBlock(BYTES)];
  expect(one.buffer).toBe(block.buffer);
  expect(other.buffer).not.toBe(block.buffer);
});

test("what is somebody else's is not taken, and what is lent has the length that was asked for", () => {
  const own = Buffer.alloc(BYTES);
  giveBlock(own);
  expect(takeBlock(BYTES).buffer).not.toBe(own.buffer);
  for (const length of [1, 50_000, BYTES, BYTES + 2]) expect(takeBlock(length).length).toBe(length);
});

test("what waits for its next use is bounded, and kept of the size that is in use", () => {
  for (const bytes of [BYTES, BYTES / 2]) {
    const blocks = Array.from({ length: 64 }, () => takeBlock(bytes));
    const given = new Set(blocks.map(({ buffer }) => buffer));
    for (const block of blocks) giveBlock(block);
    const again = Array.from({ length: 64 }, () => takeBlock(bytes)).filter(({ buffer }) =>
      given.has(buffer),
    );
    expect(again.length).toBeGreaterThan(0);
    expect(again.length * bytes).toBeLessThanOrEqual(2 * 1024 * 1024);
    for (const block of again) giveBlock(block);
  }
});

test("memory for a chunk serves a chunk with what stands around it, too: otherwise what one kind of stream left is in the other's way", () => {
  const blocks = Array.from({ length: 64 }, () => takeBlock(BYTES));
  const given = new Set(blocks.map(({ buffer }) => buffer));
  for (const block of blocks) giveBlock(block);
  for (let i = 0; i < 20; i++) {
    const [whole, message] = [takeBlock(BYTES), takeBlock(BYTES + 300)];
    expect([given.has(whole.buffer), given.has(message.buffer)]).toEqual([true, true]);
    giveBlock(message);
    giveBlock(whole);
  }
});

test("a message's memory that is used again once the connection is idle, and not before, changes no message", async () => {
  await using server = await testServer();
  const user = await server.user("acme", "ann");
  const sandbox = await server.sandbox("acme", "sb-1");
  const count = 96;
  const seen: number[] = [];
  const all = Promise.withResolvers<void>();
  user.subscribe("rep.v1.acme.sb-1.ann.t.1", ({ data }) => {
    const first = data[0] ?? 0;
    seen.push(Buffer.alloc(BYTES, first).equals(data) ? first : -1);
    if (seen.length === count) all.resolve();
  });
  await user.flush();
  let block = Buffer.alloc(BYTES);
  let held = 0;
  process.kill(server.server.pid, "SIGSTOP");
  for (let i = 0; i < count; i++) {
    if (!sandbox.idle) {
      block = Buffer.alloc(BYTES);
      held++;
    }
    block.fill(i);
    sandbox.publish("rep.v1.acme.sb-1.ann.t.1", new Uint8Array(0), { tail: [block] });
  }
  process.kill(server.server.pid, "SIGCONT");
  await all.promise;
  expect(seen).toEqual(Array.from({ length: count }, (_, i) => i));
  expect(held).toBeGreaterThan(0);
});
