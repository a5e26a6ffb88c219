// Whatever a stranger or a broken client sends, over the real wire to a real daemon and a real pool: a typed error (or
// silence, where there is nowhere to answer), and both live on with nothing leaked.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import {
  decode,
  ERROR_CLASSES,
  encode,
  POOL_VERBS,
  poolSubject,
  SANDBOX_VERBS,
  sandboxSubject,
} from "../../broker/contract/index.ts";
import { bodies, seeded } from "../../broker/contract/testing.ts";
import { type Credentials, parseCreds } from "../../broker/credentials/index.ts";
import { connect as dial } from "../../broker/link/connect.ts";
import type { Link } from "../../broker/link/link.ts";
import { keyRingOf, parseOperatorKeys } from "../../broker/server/operator.ts";
import { connect, type Mesh, type Sandbox, SandmeshError } from "../../sdk/typescript/mod.ts";
import { eventually, type LocalMesh, localMesh } from "../e2e/program.ts";

const TENANT = "default";
const CASES = 50;
const MiB = 1024 * 1024;

let mesh: LocalMesh;
let link: Link;
let client: Mesh;
let box: Sandbox;
beforeAll(async () => {
  mesh = await localMesh();
  link = await dial({ urls: [mesh.url], credentials: parseCreds(readFileSync(mesh.credentials, "utf8")) });
  client = await connect({ url: mesh.url, credentials: mesh.credentials, handleSignals: false });
  box = await client.acquire({ image: "host" });
});
afterAll(async () => {
  await client.close();
  await link.close();
  await mesh[Symbol.asyncDispose]();
});

/** Fields that requests have, with what none of them may be. */
const FIELDS = [
  "version",
  "id",
  "run",
  "spec",
  "lease",
  "generation",
  "sandbox",
  "argv",
  "shell",
  "path",
  "data",
];
const WRONG: readonly unknown[] = [
  null,
  2,
  -1,
  1e300,
  2 ** 53,
  Number.NaN,
  "",
  "a.b",
  "*",
  ">",
  "a b",
  "\0",
  "x".repeat(5_000),
  [],
  [null],
  {},
  { image: 1 },
  { image: "host", env: ["A=1"] },
  new Uint8Array(3),
];

/** Noise, huge claims, and well-formed maps with one field that is wrong. */
function* spoiled(seed: number): Generator<Uint8Array> {
  yield* bodies(seed, CASES);
  const random = seeded(seed);
  const pick = <T>(list: readonly T[]): T | undefined => list[Math.floor(random() * list.length)];
  for (let i = 0; i < CASES; i++) {
    const value = { version: 1, [pick(FIELDS) ?? "id"]: pick(WRONG), [pick(FIELDS) ?? "id"]: pick(WRONG) };
    yield encode(value, random() < 0.5 ? "json" : "msgpack");
  }
}

const seedOf = (verb: string) => [...verb].reduce((sum, char) => sum * 31 + char.charCodeAt(0), 7) >>> 0;

async function fuzz(responder: string, subject: string, verb: string): Promise<void> {
  const seed = seedOf(verb);
  for (const body of spoiled(seed)) {
    const what = `${verb}, seed ${seed}: ${Buffer.from(body).toString("hex").slice(0, 300)}`;
    const { data } = await link.request(responder, subject, body, { timeoutMs: 10_000 });
    const { error } = decode(data);
    const code = error === undefined ? undefined : String(Object(error).code);
    const typed = code === undefined || Object.hasOwn(ERROR_CLASSES, code);
    // An internal error is a fault that bad input has found.
    expect([what, typed, code === "internal"]).toEqual([what, true, false]);
    link.publish(subject, body);
  }
}

/** The daemon and the pool answer, and there is what there was. */
async function unharmed(): Promise<void> {
  expect((await box.exec("echo well")).stdout.text).toBe("well\n");
  expect((await client.list()).map(({ sandbox, state }) => [sandbox, state])).toEqual([[box.id, "leased"]]);
  expect((await client.status()).queued).toBe(0);
}

test.each(Object.keys(SANDBOX_VERBS))("the daemon's %s", async (verb) => {
  await fuzz(box.id, sandboxSubject(TENANT, box.id, verb), verb);
  await unharmed();
});

// `drain` the server refuses to users, whatever it says; pool/service/fuzz.test.ts asks it as an operator.
test.each(Object.keys(POOL_VERBS).filter((verb) => verb !== "drain"))("the pool's %s", async (verb) => {
  await fuzz("pool", poolSubject(TENANT, verb), verb);
  await unharmed();
});

test("a verb that does not exist is named as such by both", async () => {
  for (const [responder, subject] of [
    ["pool", poolSubject(TENANT, "no_such_verb")],
    [box.id, sandboxSubject(TENANT, box.id, "no_such_verb")],
  ] as const) {
    const { data } = await link.request(responder, subject, encode({ version: 1 }), { timeoutMs: 5_000 });
    expect(decode(data)).toMatchObject({ error: { code: "unknown_verb" } });
  }
  // Not a verb at all: silence.
  for (const verb of ["EXEC", "ex-ec", "x".repeat(40)]) {
    link.publish(`sbx.v1.${TENANT}.${box.id}.${verb}`, encode({ version: 1 }), {
      reply: `rep.v1.${TENANT}.${box.id}.me.odd`,
    });
  }
  await unharmed();
});

test("claims of 2 GiB cost neither of them memory", async () => {
  const pool = poolSubject(TENANT, "acquire");
  const exec = sandboxSubject(TENANT, box.id, "exec");
  for (const claim of ["c67fffffff", "dbffffffff", "dd7fffffff", "df7fffffff", "81a161c67fffffff"]) {
    const body = Buffer.from(claim, "hex");
    for (const [responder, subject] of [
      ["pool", pool],
      [box.id, exec],
    ] as const) {
      const { data } = await link.request(responder, subject, body, { timeoutMs: 5_000 });
      expect(decode(data)).toMatchObject({ error: { code: "invalid_request", field: "body" } });
    }
  }
  const running = readFileSync(join(mesh.home, "local", "sandboxes", box.id, "running"), "utf8");
  const pid = Number(/"pid": ?(\d+)/.exec(running)?.[1]);
  const peakKiB = Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);
  expect(peakKiB).toBeLessThan(512 * 1024);
  await unharmed();
});

test("more than a message may hold is refused before it is sent, and 1 MiB is answered", async () => {
  const subject = sandboxSubject(TENANT, box.id, "exec");
  const tooLarge = link.request(box.id, subject, new Uint8Array(MiB + 1), { timeoutMs: 5_000 });
  expect(tooLarge).rejects.toMatchObject({ code: "too_large" });
  await tooLarge.catch(() => undefined);
  const body = encode({ version: 1, argv: ["true"], junk: "x".repeat(MiB - 200) });
  const { data } = await link.request(box.id, subject, body, { timeoutMs: 5_000 });
  expect(decode(data)).toMatchObject({ type: "end", outcome: { type: "exited", code: 0 } });
  await unharmed();
});

test("an answer is never sent to a subject that is not its asker's", async () => {
  const { sandbox } = { sandbox: box.id };
  const file = "/tmp/should-not-run";
  const body = encode({ version: 1, argv: ["touch", file] });
  for (const reply of [
    poolSubject(TENANT, "drain"),
    sandboxSubject(TENANT, sandbox, "exec"),
    `rep.v1.other.${sandbox}.me.x`,
    `rep.v1.${TENANT}.sb-another.me.x`,
    `rep.v1.${TENANT}.${sandbox}.me`,
    "_INBOX.x.y",
  ]) {
    link.publish(sandboxSubject(TENANT, sandbox, "exec"), body, { reply });
    link.publish(poolSubject(TENANT, "status"), encode({ version: 1 }), { reply });
  }
  await link.flush();
  await unharmed();
  expect(await box.files.exists(file)).toBe(false);
});

test("an id with a dot, a wildcard or a space is refused before it becomes a subject", async () => {
  for (const id of ["a.b", "*", ">", "a b", "", "A", "x".repeat(64), "sb-1\r\nPUB x 0"]) {
    const asked = await client
      .sandbox(id)
      .ping()
      .catch((error: unknown) => error);
    expect(asked).toBeInstanceOf(SandmeshError);
    expect(asked).toMatchObject({ code: "invalid_request", field: "sandbox" });
    const acquired = await client.acquire({ image: "host", run: id }).catch((error: unknown) => error);
    expect(acquired).toMatchObject({ code: "invalid_request", field: "run" });
  }
  await unharmed();
});

test("wrong, foreign and expired credentials are refused, typed", async () => {
  const keys = keyRingOf(parseOperatorKeys(readFileSync(join(mesh.home, "nats", "keys.json"), "utf8")).keys);
  const good = keys.mintUser({ tenant: TENANT, user: "me" });
  const other = keys.mintUser({ tenant: TENANT, user: "you" });
  const [head, claims] = good.jwt.split(".");
  const wrong = {
    "of another key": { jwt: good.jwt, seed: other.seed },
    "with its signature cut off": { jwt: `${head}.${claims}.`, seed: good.seed },
    "that is no JWT": { jwt: "nonsense", seed: good.seed },
  };
  const refusal = async (credentials: Credentials): Promise<unknown> => {
    try {
      const opened = await dial({ urls: [mesh.url], credentials, connectTimeoutMs: 3_000 });
      await opened.close();
      return "accepted";
    } catch (error) {
      return Object(error).code;
    }
  };
  for (const [what, credentials] of Object.entries(wrong)) {
    const code = await refusal(credentials);
    expect([what, ["permission_denied", "invalid_request"].includes(String(code))]).toEqual([what, true]);
  }
  const brief = keys.mintUser({ tenant: TENANT, user: "me", ttlMs: 1_000 });
  await eventually("its time is over", async () => (await refusal(brief)) === "permission_denied");
  await unharmed();
});
