// With the nats CLI alone, as a reader of the README would: acquire, confirm, list, exec, sh, events, renew, release.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import * as v from "valibot";
import { EndFrame, Grant, ListAnswer, ReleaseAnswer, RenewAnswer } from "../../broker/contract/index.ts";
import { findNatsCli } from "../../broker/server/index.ts";
import { eventually, type LocalMesh, localMesh, type Ran, run } from "./program.ts";

let cli: string;
let mesh: LocalMesh;
/** Where the CLI's contexts go, so that a person's own stay as they are. */
let config: string;
beforeAll(async () => {
  cli = await findNatsCli();
  mesh = await localMesh();
  config = await mkdtemp(join(tmpdir(), "sandmesh-nats-"));
  await context("pool");
}, 900_000);
afterAll(async () => {
  await mesh[Symbol.asyncDispose]();
  await rm(config, { recursive: true, force: true });
});

async function context(responder: string): Promise<void> {
  const ran = await mesh.sandmeshWith({ env: { XDG_CONFIG_HOME: config } }, "context", responder);
  expect(ran).toMatchObject({ code: 0, stdout: `sandmesh-${responder}\n` });
  // What it does not say itself.
  expect(ran.stderr).toContain(`for ${responder} alone`);
}

/** `nats --context sandmesh-RESPONDER ARGUMENTS…` */
function nats(responder: string, ...args: string[]): Promise<Ran> {
  const env = { XDG_CONFIG_HOME: config, HOME: config };
  return run([cli, "--context", `sandmesh-${responder}`, ...args], { env });
}

async function ask<S extends v.GenericSchema<unknown, unknown>>(
  answer: S,
  responder: string,
  verb: string,
  body: string,
): Promise<v.InferOutput<S>> {
  const subject = responder === "pool" ? `pool.v1.default.${verb}` : `sbx.v1.default.${responder}.${verb}`;
  const ran = await nats(responder, "req", subject, body, "--raw", "--timeout", "30s");
  expect({ code: ran.code, stderr: ran.stderr }).toMatchObject({ code: 0 });
  return v.parse(answer, JSON.parse(ran.stdout));
}

const Refused = v.object({
  error: v.looseObject({ code: v.string(), field: v.optional(v.string()), message: v.string() }),
});

async function acquired(): Promise<v.InferOutput<typeof Grant>> {
  const grant = await ask(Grant, "pool", "acquire", '{"spec":{"image":"host"}}');
  const { sandbox, generation } = grant;
  await ask(
    v.object({ sandbox: v.literal(sandbox) }),
    "pool",
    "confirm",
    JSON.stringify({ sandbox, generation }),
  );
  return grant;
}

test("a sandbox's life: acquired with its image alone, used, renewed, released", async () => {
  const { sandbox, run: itsRun } = await acquired();
  // Whoever names no run gets the one with his name.
  expect(itsRun).toBe("me");
  const { sandboxes } = await ask(ListAnswer, "pool", "list", "");
  expect(sandboxes).toMatchObject([{ sandbox, state: "leased", run: "me" }]);

  await context(sandbox);
  const end = await ask(EndFrame, sandbox, "exec", '{"argv":["sh","-c","echo out; echo err >&2; exit 3"]}');
  expect(end.outcome).toEqual({ type: "exited", code: 3 });
  expect(Buffer.from(end.stdout ?? []).toString()).toBe("out\n");
  expect(Buffer.from(end.stderr ?? []).toString()).toBe("err\n");

  const sh = await nats(
    sandbox,
    "req",
    `sbx.v1.default.${sandbox}.sh`,
    "echo hello; exit 4",
    "--timeout",
    "10s",
  );
  expect(sh.stdout).toContain("hello\n");
  expect(sh.stdout + sh.stderr).toContain("Sandmesh-Status: 4");
  expect(sh.stdout + sh.stderr).toMatch(/Sandmesh-Outcome: exited.* 4/);
  const raw = await nats(
    sandbox,
    "req",
    `sbx.v1.default.${sandbox}.sh`,
    "printf kept > /tmp/f; cat /tmp/f",
    "--raw",
  );
  expect(raw.stdout.trimEnd()).toBe("kept");

  const renewed = await ask(RenewAnswer, "pool", "renew", `{"run":"me","lease_ms":3600000}`);
  expect(renewed).toEqual({ run: "me", lease_ms: 3_600_000, sandboxes: 1 });
  expect(await ask(ReleaseAnswer, "pool", "release", JSON.stringify({ sandbox }))).toEqual({
    released: 1,
    known: 1,
  });
  expect((await ask(ListAnswer, "pool", "list", "")).sandboxes).toEqual([]);
});

test("a context is found whatever HOME says, as the CLI looks it up, and goes with its sandbox", async () => {
  const home = join(config, "another-home");
  // Without XDG_CONFIG_HOME it is the home in the system's list of users: a person's own contexts stand there.
  const bare = { HOME: home, XDG_CONFIG_HOME: "" };
  const id = (await mesh.sandmesh("acquire", "host")).stdout.trim();
  const written = await mesh.sandmeshWith({ env: bare }, "--json", "context", id);
  const { path, context: name } = JSON.parse(written.stdout);
  const asked = ["--context", name, "req", `sbx.v1.default.${id}.sh`, "echo found", "--raw"];
  expect((await run([cli, ...asked], { env: bare })).stdout).toContain("found");
  expect(path).not.toStartWith(home);
  expect((await mesh.sandmeshWith({ env: bare }, "release", id)).code).toBe(0);
  expect(await Bun.file(path).exists()).toBe(false);
  expect(await Bun.file(path.replace(/json$/, "creds")).exists()).toBe(false);
});

test("a sandbox that is gone is told at once, not by a time-out", async () => {
  const { sandbox } = await acquired();
  await context(sandbox);
  await ask(ReleaseAnswer, "pool", "release", JSON.stringify({ sandbox }));
  const ran = await nats(sandbox, "req", `sbx.v1.default.${sandbox}.sh`, "true", "--timeout", "30s");
  expect(ran.stdout + ran.stderr).toMatch(/no responders/i);
  // Who released it is not who wrote its context.
  const written = join(config, "nats", "context", `sandmesh-${sandbox}.json`);
  expect(existsSync(written)).toBe(true);
  await mesh.sandmeshWith({ env: { XDG_CONFIG_HOME: config } }, "ps");
  expect(existsSync(written)).toBe(false);
});

test("what happens can be watched", async () => {
  const env = { ...process.env, XDG_CONFIG_HOME: config, HOME: config };
  const watching = Bun.spawn([cli, "--context", "sandmesh-pool", "sub", "evt.v1.default.>"], {
    env,
    stdout: "pipe",
    stderr: "pipe",
  });
  let seen = "";
  const read = async (stream: ReadableStream<Uint8Array>) => {
    for await (const part of stream) seen += Buffer.from(part).toString("latin1");
  };
  const reading = Promise.all([read(watching.stdout), read(watching.stderr)]);
  await eventually("it has subscribed", () => seen.includes("evt.v1.default.>"));
  const { sandbox } = await acquired();
  await ask(ReleaseAnswer, "pool", "release", JSON.stringify({ sandbox }));
  await eventually("the last event", () => seen.includes("run.me.released"));
  watching.kill();
  await reading;
  for (const what of ["creating", "granted", "leased", "released"])
    expect(seen).toContain(`evt.v1.default.run.me.${what}`);
  expect(seen).toContain(`evt.v1.default.sbx.${sandbox}.ready`);
});

test("nobody drains the pool but its operator, whose name no other can take on", async () => {
  const { sandbox } = await acquired();
  const drain = ["pool.v1.default.drain", '{"on":true,"release_all":true}'];
  const names = ["operator", "me", "pool", "root"].map((user) => `rep.v1.default.pool.${user}.x`);
  for (const reply of names) {
    const posing = await nats("pool", "pub", ...drain, "--reply", reply);
    expect([posing.code, posing.stderr]).toEqual([
      1,
      expect.stringContaining("Permissions Violation for Publish"),
    ]);
  }
  const honest = await nats("pool", "req", ...drain, "--raw", "--timeout", "1s");
  expect([honest.stdout, honest.stderr]).toEqual([
    "",
    expect.stringContaining("Permissions Violation for Publish"),
  ]);
  expect((await ask(ListAnswer, "pool", "list", "")).sandboxes).toMatchObject([{ sandbox, state: "leased" }]);
  await acquired();

  const asOperator = ["--creds", join(mesh.home, "operator.creds"), "context", "pool"];
  const written = await mesh.sandmeshWith({ env: { XDG_CONFIG_HOME: config } }, ...asOperator);
  expect(written).toMatchObject({ code: 0, stdout: "sandmesh-pool-operator\n" });
  const drained = (body: string) =>
    nats("pool-operator", "req", "pool.v1.default.drain", body, "--raw").then(({ stdout }) =>
      JSON.parse(stdout),
    );
  expect(await drained('{"on":true}')).toEqual({ draining: true, remaining: 2 });
  expect((await ask(Refused, "pool", "acquire", '{"spec":{"image":"host"}}')).error.code).toBe("draining");
  expect(await drained('{"on":false}')).toEqual({ draining: false, remaining: 2 });
  expect(await ask(ReleaseAnswer, "pool", "release", '{"run":"me"}')).toMatchObject({ released: 2 });
});

test("a wrong request is told with the field at fault, in JSON", async () => {
  const wrong: [verb: string, body: string, code: string, field: string][] = [
    ["acquire", "{}", "invalid_request", "spec"],
    ["acquire", '{"spec":{}}', "invalid_request", "spec.image"],
    ["acquire", '{"spec":{"image":"host"},"run":"a b"}', "invalid_request", "run"],
    ["acquire", '{"spec":{"image":"host","memory_bytes":"1GiB"}}', "invalid_request", "spec.memory_bytes"],
    ["acquire", '{"spec":{"image":"/no/such/image"}}', "image_error", "spec.image"],
    ["acquire", '{"spec":', "invalid_request", "body"],
    ["confirm", '{"sandbox":"x.y","generation":1}', "invalid_request", "sandbox"],
    ["renew", '{"run":"me","version":2}', "invalid_request", "version"],
    ["release", '{"run":"a","lease":"b"}', "invalid_request", "lease"],
  ];
  for (const [verb, body, code, field] of wrong) {
    const { error } = await ask(Refused, "pool", verb, body);
    expect([verb, body, error.code, error.field]).toEqual([verb, body, code, field]);
  }
  const { sandbox } = await acquired();
  await context(sandbox);
  const { error } = await ask(Refused, sandbox, "exec", '{"argv":"id"}');
  expect([error.code, error.field]).toEqual(["invalid_request", "argv"]);
  const unknown = await ask(Refused, "pool", "no_such_verb", "{}");
  expect(unknown.error.code).toBe("unknown_verb");
  await ask(ReleaseAnswer, "pool", "release", JSON.stringify({ sandbox }));
});
