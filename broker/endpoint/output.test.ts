// What is held of a stream, against a plain model of it.
import { expect, test } from "bun:test";
import { seeded } from "../contract/testing.ts";
import { takeBlock } from "../link/blocks.ts";
import { Flow, tokenOf, Window } from "./flow.ts";
import { type Keep, OutputBuffer } from "./output.ts";

const BLOCK_BYTES = 256 * 1024;
const ROOM = Number.MAX_SAFE_INTEGER;

test("any sequence of writes, limits, trims and reads holds the very bytes it should", () => {
  for (let seed = 1; seed <= 200; seed++) {
    const random = seeded(seed);
    const limit = Math.floor(random() * 20_000);
    const keep: Keep = random() < 0.5 ? "head" : "tail";
    const buffer = new OutputBuffer(limit, keep);
    let all = Buffer.alloc(0);
    let start = 0;
    for (let step = 0; step < 40; step++) {
      const length = Math.floor(random() ** 3 * 9000);
      const part = Buffer.from(Array.from({ length }, () => random() * 256));
      all = Buffer.concat([all, part]);
      expect(buffer.append(part, ROOM)).toBe(all.length > limit);
      // The writer may use a small part's memory again.
      if (length < 4096) part.fill(0);
      if (keep === "head" && random() < 0.2) {
        start = Math.max(start, Math.floor(random() * buffer.end));
        buffer.trim(start);
      }
      if (keep === "tail") start = Math.max(0, all.length - limit);
      if (random() < 0.1) buffer.pack();
      const end = keep === "tail" ? all.length : Math.min(limit, all.length);
      const what = `seed ${seed}, step ${step}, ${keep} of ${limit}`;
      expect([what, buffer.total, buffer.start, buffer.end]).toEqual([what, all.length, start, end]);
      const from = start + Math.floor(random() * (end - start));
      const max = Math.floor(random() * 8000);
      const wanted = all.subarray(from, Math.min(end, from + max));
      expect([what, Buffer.from(buffer.slice(from, max)).equals(wanted)]).toEqual([what, true]);
    }
  }
});

test("a program that writes byte by byte costs no more pieces than its bytes are worth", () => {
  const buffer = new OutputBuffer(ROOM, "head");
  const line = Buffer.from("ab");
  for (let i = 0; i < 100_000; i++) buffer.append(line, ROOM);
  const text = Buffer.from(buffer.slice(0, 200_000)).toString();
  expect(text === "ab".repeat(100_000)).toBe(true);
});

test("what is held in much more memory than its bytes is packed, and that memory is used again", () => {
  const buffer = new OutputBuffer(ROOM, "head");
  const blocks = [1, 2, 3].map((byte) => takeBlock(BLOCK_BYTES).fill(byte));
  for (const block of blocks) buffer.append(block, ROOM);
  buffer.trim(2.5 * BLOCK_BYTES);
  buffer.pack();
  const [part] = buffer.parts(2.5 * BLOCK_BYTES, BLOCK_BYTES);
  expect(part?.buffer.byteLength).toBe(BLOCK_BYTES / 2);
  expect(part?.every((byte) => byte === 3)).toBe(true);
  expect(takeBlock(BLOCK_BYTES).buffer).toBe(blocks[2]?.buffer as ArrayBuffer);
});

test("memory of what is cleared is used again where nobody looks at it any more", () => {
  for (const give of [true, false]) {
    const buffer = new OutputBuffer(ROOM, "head");
    const block = takeBlock(BLOCK_BYTES);
    buffer.append(block, ROOM);
    buffer.clear(undefined, give);
    expect(takeBlock(BLOCK_BYTES).buffer === block.buffer).toBe(give);
  }
});

test("memory that is used up is a hole that is known, not one that is filled by what comes later", () => {
  const head = new OutputBuffer(100, "head");
  head.append(Buffer.from("abc"), 2);
  head.append(Buffer.from("def"), ROOM);
  expect([head.total, head.end, head.closed, Buffer.from(head.slice(0, 9)).toString()]).toEqual([
    6,
    2,
    true,
    "ab",
  ]);
  const tail = new OutputBuffer(100, "tail");
  tail.append(Buffer.from("abc"), ROOM);
  tail.append(Buffer.from("de"), 0);
  expect([tail.start, Buffer.from(tail.slice(tail.start, 9)).toString()]).toEqual([2, "cde"]);
});

test("who wants more than it needs to go on waits for the budget of the connection, and is woken in order", () => {
  const flow = new Flow(10);
  const woken: string[] = [];
  const greedy = new Window(0, 0);
  expect(flow.take(8, greedy, () => woken.push("x"))).toBe(8);
  expect(flow.take(8, greedy, () => woken.push("x"))).toBe(2);
  expect(flow.take(1, greedy, () => woken.push("a"))).toBe(0);
  expect(flow.take(1, greedy, () => woken.push("b"))).toBe(0);
  flow.give(3);
  expect([woken, flow.used]).toEqual([["a", "b"], 7]);
});

test("half of its credit a reader has whatever others hold, and no more; what is overdrawn wakes nobody", () => {
  const flow = new Flow(10);
  flow.take(10, new Window(0, 100), () => {});
  const window = new Window(0, 7);
  const woken: string[] = [];
  window.sent = flow.take(9, window, () => {});
  expect([window.sent, flow.take(9, window, () => woken.push("again"))]).toEqual([4, 0]);
  flow.give(window.credit(3, 10));
  expect([woken, flow.used, flow.take(9, window, () => {})]).toEqual([[], 11, 3]);
  flow.give(5);
  expect([woken, flow.used]).toEqual([["again"], 9]);
});

test("beyond the budget twice as much is on its way to those who are sure of it, then little to each, and none stands still", () => {
  const kib = 1024;
  const flow = new Flow(256 * kib);
  const take = () => flow.take(1024 * kib, new Window(0, 256 * kib), () => {});
  expect(flow.take(1024 * kib, new Window(0, 0), () => {})).toBe(256 * kib);
  expect(Array.from({ length: 6 }, take)).toEqual([128, 128, 128, 128, 16, 16].map((n) => n * kib));
});

test("credit only grows: what is old, doubled or beyond what was sent changes nothing", () => {
  const window = new Window(100, 50);
  window.sent = 150;
  expect(window.credit(120, 200)).toBe(20);
  expect(window.credit(120, 200)).toBe(0);
  expect(window.credit(90, 10)).toBe(0);
  expect(window.credit(9999, 0)).toBe(30);
  expect([window.until, window.inFlight]).toEqual([200, 0]);
});

test("what is written off or sent again is given back to the budget once, and is not taken for received", () => {
  const window = new Window(0, 100);
  window.sent = 80;
  expect([window.credit(30, 100), window.writeOff(), window.inFlight, window.received]).toEqual([
    30, 50, 0, 30,
  ]);
  // Late word of what was written off.
  expect([window.credit(60, 130), window.inFlight, window.received]).toEqual([0, 0, 60]);
  window.sent = 100;
  expect([window.inFlight, window.rewind(), window.sent, window.inFlight]).toEqual([20, 20, 60, 0]);
  window.sent = 90;
  expect([window.inFlight, window.credit(90, 0)]).toEqual([30, 30]);
});

test("a reader's name is all that stands behind the user in its answer subject", () => {
  expect(tokenOf("rep.v1.acme.sb-1.ann.ab12.7f")).toBe("ab12.7f");
  expect(tokenOf("rep.v1.acme.sb-1.ann.x")).toBe("x");
});
