// Objects in protocol buffers: what is read of them, and that bytes which are none are told as such.
import { expect, test } from "bun:test";
import { errorOf } from "../../../testing/errors.ts";
import { PodView } from "../observe.ts";
import { Collection } from "./collection.ts";
import { BINARY, eventOf, objectOf } from "./objects.ts";
import { frames } from "./split.ts";
import { Transport } from "./transport.ts";

const varint = (value: number): number[] =>
  value < 128 ? [value] : [(value % 128) + 128, ...varint(Math.floor(value / 128))];
const field = (number: number, content: string | readonly number[]): number[] => {
  const inside = typeof content === "string" ? [...Buffer.from(content)] : content;
  return [...varint(number * 8 + 2), ...varint(inside.length), ...inside];
};
const number = (of: number, value: number): number[] => [...varint(of * 8), ...varint(value)];
const envelope = (kind: string, raw: readonly number[]): number[] => [
  ...Buffer.from("k8s\0"),
  ...field(1, [...field(1, "v1"), ...field(2, kind)]),
  ...field(2, raw),
];
const event = (type: string, object: readonly number[]): number[] => [
  ...field(1, type),
  ...field(2, field(1, object)),
];
const framed = (message: readonly number[]): number[] => {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(message.length);
  return [...length, ...message];
};

const metadata = [
  ...field(1, "sb-1"),
  ...field(5, "uid-1"),
  ...field(6, "7"),
  ...field(9, number(1, 1_700_000_000)),
  ...field(11, [...field(1, "a"), ...field(2, "ä")]),
  ...field(11, field(1, "empty")),
];
const terminated = [...number(1, 137), ...field(3, "OOMKilled"), ...field(5, [])];
const status = [
  ...field(1, "Failed"),
  ...field(8, [...field(1, "sandbox"), ...field(2, field(3, terminated))]),
  ...field(8, field(1, "other")),
];
const pod = [...field(1, metadata), ...field(2, field(10, "")), ...field(3, status)];

test("a pod has the shape of its JSON: what is empty is absent, what may be there several times is an array", () => {
  expect(objectOf(new Uint8Array(envelope("Pod", pod)))).toEqual({
    metadata: {
      name: "sb-1",
      uid: "uid-1",
      resourceVersion: "7",
      deletionTimestamp: "2023-11-14T22:13:20Z",
      labels: { a: "ä", empty: "" },
    },
    spec: {},
    status: {
      phase: "Failed",
      containerStatuses: [
        { name: "sandbox", state: { terminated: { exitCode: 137, reason: "OOMKilled" } } },
        { name: "other" },
      ],
    },
  });
});

test("a list of none has none; a negative number is one; fields of every type that nobody reads are skipped", () => {
  expect(objectOf(new Uint8Array(envelope("PodList", field(1, field(2, "9")))))).toEqual({
    metadata: { resourceVersion: "9" },
    items: [],
  });
  const minusOne = [...varint(8), 255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
  const unknown = [
    ...number(100, 2 ** 40),
    ...[...varint(101 * 8 + 1), 1, 2, 3, 4, 5, 6, 7, 8],
    ...[...varint(102 * 8 + 5), 1, 2, 3, 4],
    ...field(103, "x"),
  ];
  const state = field(2, field(3, [...minusOne, ...unknown]));
  const found = objectOf(new Uint8Array(envelope("Pod", field(3, field(8, state)))));
  expect(found).toEqual({ status: { containerStatuses: [{ state: { terminated: { exitCode: -1 } } }] } });
});

test("a frame that comes in any two pieces is told once and whole", () => {
  const told = event("ADDED", envelope("Pod", pod));
  const two = Buffer.from([...framed(told), ...framed(told)]);
  for (let cut = 0; cut <= two.length; cut++) {
    const split = frames();
    const found = [...split(two.subarray(0, cut)), ...split(two.subarray(cut))];
    expect(found.map((each) => eventOf(each).type)).toEqual(["ADDED", "ADDED"]);
  }
});

test("bytes that end in the middle of a pod are never taken for a smaller one", () => {
  const whole = event("MODIFIED", envelope("Pod", pod));
  for (let end = 0; end < whole.length; end++) {
    expect(() => eventOf(new Uint8Array(whole.slice(0, end)))).toThrow();
  }
});

/** What a watch tells whose server sends these bytes. */
async function watched(bytes: readonly number[]): Promise<unknown[]> {
  await using server = Bun.serve({
    port: 0,
    fetch: () =>
      new Response(new Uint8Array(bytes), { headers: { "content-type": `${BINARY};stream=watch` } }),
  });
  const transport = new Transport(
    {
      server: server.url,
      proxied: false,
      close: () => undefined,
      credentials: () => Promise.resolve({}),
    },
    { maxRequests: 1, requestTimeoutMs: 5_000 },
  );
  try {
    const pods = new Collection(transport, "/pods", "a=b", PodView, "pods", BINARY);
    const told: unknown[] = [];
    for await (const line of pods.watch("1", new AbortController().signal)) told.push(line);
    return told;
  } finally {
    transport.close();
  }
}

test("what cannot be read of a watch is an error that only a list cures", async () => {
  const good = framed(event("ADDED", envelope("Pod", pod)));
  for (const bad of [
    framed([255, 255]),
    framed(event("ADDED", envelope("Secret", []))),
    framed(event("ADDED", [...Buffer.from('{"kind":"Pod"}')])),
    [255, 255, 255, 255, 0],
  ]) {
    expect(await errorOf(watched([...good, ...bad]))).toMatchObject({ reason: "unreadable" });
  }
});

test("a watch's bookmark and its refusal are told as in JSON", async () => {
  const bookmark = framed(event("BOOKMARK", envelope("Pod", field(1, field(6, "42")))));
  const gone = [...field(2, "Failure"), ...field(3, "too old"), ...field(4, "Expired"), ...number(6, 410)];
  expect(await watched([...bookmark, ...framed(event("ERROR", envelope("Status", gone)))])).toEqual([
    { type: "BOOKMARK", version: "42" },
    { type: "ERROR", code: 410, message: "too old" },
  ]);
});
