// However the server's bytes are cut, the same messages come of them; and what is no NATS is not taken for some.
import { expect, test } from "bun:test";
import { seeded } from "../contract/testing.ts";
import { MessageParser } from "./parser.ts";

interface Expected {
  line?: string;
  subject?: string;
  reply?: string | undefined;
  sid?: number;
  hdr?: number;
  data?: string;
}

function traffic(random: () => number): { bytes: Buffer; expected: Expected[] } {
  const parts: Buffer[] = [];
  const expected: Expected[] = [];
  for (let i = 0; i < 30; i++) {
    const kind = Math.floor(random() * 4);
    if (kind === 0) {
      const line = ["PING\r\n", "PONG\r\n", "+OK\r\n", 'INFO {"a":1}\r\n', "-ERR 'm'\r\n"][i % 5] ?? "";
      parts.push(Buffer.from(line));
      expected.push({ line });
      continue;
    }
    const size = Math.floor(random() < 0.3 ? random() * 100_000 : random() * 40);
    // Line ends and protocol words in the data are data.
    const data = Buffer.alloc(size, "MSG a 1 5\r\nx");
    const hdr = kind === 1 ? Math.floor(random() * size) : -1;
    const reply = random() < 0.5 ? `rep.v1.a.${i}` : undefined;
    const numbers = hdr < 0 ? `${size}` : `${hdr} ${size}`;
    const verb = hdr < 0 ? "MSG" : "HMSG";
    const to = reply === undefined ? "" : `${reply} `;
    parts.push(Buffer.from(`${verb} sbx.v1.a.${i} ${i} ${to}${numbers}\r\n`), data, Buffer.from("\r\n"));
    expected.push({ subject: `sbx.v1.a.${i}`, reply, sid: i, hdr, data: data.toString("latin1") });
  }
  return { bytes: Buffer.concat(parts), expected };
}

function collector(): { parser: MessageParser; got: Expected[] } {
  const got: Expected[] = [];
  const text = (bytes: Uint8Array) => Buffer.from(bytes).toString("latin1");
  const parser = new MessageParser({
    message: ({ subject, reply, sid, hdr, size }, data) => {
      expect(data.length).toBe(size);
      got.push({ subject: text(subject), reply: reply && text(reply), sid, hdr, data: text(data) });
    },
    line: (line) => got.push({ line: text(line) }),
  });
  return { parser, got };
}

test("messages, headers and other lines come out whole and in order, cut anywhere", () => {
  for (let seed = 1; seed <= 18; seed++) {
    const random = seeded(seed);
    const { bytes, expected } = traffic(random);
    const { parser, got } = collector();
    const largest = [1, 7, 100, 5_000, 90_000, 1e9][seed % 6] ?? 1;
    // Byte by byte takes long for the large ones.
    const most = bytes.length > 200_000 && largest < 100 ? 5_000 : largest;
    for (let at = 0; at < bytes.length; ) {
      const length = 1 + Math.floor(random() * most);
      parser.parse(Uint8Array.from(bytes.subarray(at, at + length)));
      at += length;
    }
    expect(got).toEqual(expected);
  }
});

test("what is read to a message's gap is the message, as if it had been parsed", () => {
  const random = seeded(3);
  const { bytes, expected } = traffic(random);
  const { parser, got } = collector();
  for (let at = 0; at < bytes.length; ) {
    const { gap } = parser;
    const length = Math.min(bytes.length - at, 1 + Math.floor(random() * (gap?.length ?? 5_000)));
    const part = bytes.subarray(at, at + length);
    if (gap === undefined) parser.parse(Uint8Array.from(part));
    else {
      gap.set(part);
      parser.came(length);
    }
    at += length;
  }
  expect(parser.gap).toBeUndefined();
  expect(got).toEqual(expected);
});

test("small traffic byte by byte", () => {
  const bytes = Buffer.from(
    "PING\r\nMSG a 1 3\r\nabc\r\nHMSG a 2 r 2 4\r\nhhdd\r\nMSG a 3 0\r\n\r\nPONG\r\n",
  );
  const { parser, got } = collector();
  for (const byte of bytes) parser.parse(Uint8Array.of(byte));
  expect(got.map(({ line, data }) => line ?? data)).toEqual(["PING\r\n", "abc", "hhdd", "", "PONG\r\n"]);
});

test.each([
  "MSG a 1 x\r\n",
  "MSG a 1 -5\r\n",
  "HMSG a 1 9 4\r\n",
  "MSG a 1 r r2 4\r\n",
  "MSG a 1 1e99\r\n",
  "HELP\r\n",
])("%p is refused, not taken for a message", (line) => {
  expect(() => collector().parser.parse(Buffer.from(line))).toThrow();
});

test("a line without end is refused before it fills memory", () => {
  const { parser } = collector();
  expect(() => {
    for (let i = 0; i < 100; i++) parser.parse(Buffer.alloc(16 * 1024, "I"));
  }).toThrow();
});
