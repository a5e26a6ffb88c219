// Whatever comes in on the pool's subjects: each request gets one typed answer, and the pool lives on.
import { expect, test } from "bun:test";
import {
  decode,
  ERROR_CLASSES,
  encode,
  enrolSubject,
  newUuidV7,
  POOL_VERBS,
  poolSubject,
} from "../../broker/contract/index.ts";
import { randomOf } from "../lifecycle/testing.ts";
import { testMesh } from "../testing/mesh.ts";

const ID = newUuidV7();
const SPEC = { image: "host" };

/** Bodies that were well-formed before something happened to them. */
const GOOD: Record<string, Record<string, unknown>> = {
  acquire: { version: 1, id: ID, run: "run-1", spec: SPEC, timeout_ms: 50 },
  confirm: { version: 1, sandbox: "sb-1", generation: 2 },
  renew: { version: 1, run: "run-1", lease_ms: 1000 },
  release: { version: 1, sandbox: "sb-1" },
  list: { version: 1, limit: 10 },
  status: { version: 1 },
  drain: { version: 1, on: false },
  enrol: { version: 1, generation: 1, incarnation: "life-one", public_key: `U${"A".repeat(55)}` },
  ready: { version: 1, generation: 1, incarnation: "life-one", boot_ms: 1 },
};

const JUNK: readonly unknown[] = [
  null,
  true,
  -1,
  1e300,
  Number.NaN,
  2 ** 53,
  "",
  "a.b",
  "*",
  ">",
  "x y",
  "x".repeat(5000),
  "\0",
  [],
  {},
  [[[[[]]]]],
  { "": null },
  new Uint8Array(10),
  new Date(0),
  { __proto__: { image: "host" }, constructor: 1, toString: 2 },
];

/** MessagePack that promises 2 GiB, is cut off, names unknown extensions, or is no map. */
const BROKEN: readonly Uint8Array[] = [
  [0xdf, 0x7f, 0xff, 0xff, 0xff],
  [0xc6, 0x7f, 0xff, 0xff, 0xff, 0x00],
  [0xdb, 0xff, 0xff, 0xff, 0xff],
  [0x81, 0xa1],
  [0xc1],
  [0x90],
  [0xc0],
  [0xd4, 0x72, 0x40],
  [0xc7, 0x0c, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
  [...Buffer.from("{")],
  [...Buffer.from('{"version":')],
  [...Buffer.from('{"__proto__":{"run":"x"},"version":2}')],
  // As deep as a bootstrap's longest message is.
  [...Buffer.from(`${'{"a":'.repeat(2_500)}1${"}".repeat(2_500)}`)],
].map((bytes) => Uint8Array.from(bytes));

function spoil(good: Record<string, unknown>, random: ReturnType<typeof randomOf>): Uint8Array {
  if (random.chance(0.2)) return BROKEN[random.below(BROKEN.length)] ?? new Uint8Array(0);
  const keys = Object.keys(good);
  const key = keys[random.below(keys.length)] ?? "version";
  const junk = JUNK[random.below(JUNK.length)];
  const value =
    key === "spec" && random.chance(0.7) ? { ...SPEC, [random.chance(0.5) ? "image" : "env"]: junk } : junk;
  const body = encode({ ...good, [key]: value }, random.chance(0.3) ? "json" : "msgpack");
  if (random.chance(0.3)) {
    const bytes = Uint8Array.from(body);
    bytes[random.below(bytes.length)] = random.below(256);
    return bytes;
  }
  return body;
}

test("no body on any subject of the pool's goes unanswered, is answered untyped, or ends the pool", async () => {
  await using mesh = await testMesh();
  // Who may ask all of it.
  const ann = await mesh.operator("ann");
  const booting = await mesh.server.bootstrap("acme", "sb-1");
  const daemon = await mesh.server.sandbox("acme", "sb-1");
  const random = randomOf(20_261);
  const asked: Promise<unknown>[] = [];
  for (let i = 0; i < 1500; i++) {
    const verbs = [...Object.keys(POOL_VERBS), "enrol", "ready", "no_such_verb"];
    const verb = verbs[random.below(verbs.length)] ?? "status";
    const body = spoil(GOOD[verb] ?? {}, random);
    if (verb === "ready") {
      daemon.publish("evt.v1.acme.sbx.sb-1.ready", body);
      continue;
    }
    const [link, subject] =
      verb === "enrol" ? [booting, enrolSubject("acme", "sb-1")] : [ann.link, poolSubject("acme", verb)];
    asked.push(
      link.request("pool", subject, body, { timeoutMs: 15_000 }).then(({ data }) => {
        const { error } = decode(data) as { error?: { code: string; message: string } };
        if (error !== undefined) expect(Object.keys(ERROR_CLASSES)).toContain(error.code);
        // A fault of the pool's own is what must not come of bad input.
        if (error?.code === "internal")
          throw new Error(`${verb}: ${error.message} ${Buffer.from(body).toString("hex")}`);
      }),
    );
  }
  await Promise.all(asked);
  await ann.drain({ on: false });
  const grant = await ann.lease({ run: "after" });
  expect(await ann.release({ sandbox: grant.sandbox })).toMatchObject({ released: 1 });
});

test("a request whose answer would go elsewhere is dropped", async () => {
  await using mesh = await testMesh();
  const ann = await mesh.caller();
  const body = encode({ version: 1 });
  const replies = [
    "pool.v1.other.drain",
    "rep.v1.other.pool.ann.x",
    "rep.v1.acme.sb-1.ann.x",
    "sbx.v1.acme.sb-1.exec",
    "rep.v1.acme.pool",
  ];
  for (const reply of replies) ann.link.publish(poolSubject("acme", "status"), body, { reply });
  ann.link.publish(poolSubject("acme", "status"), body);
  await ann.status();
  expect(mesh.pool.counters.refusedReplies).toBe(replies.length);
});
