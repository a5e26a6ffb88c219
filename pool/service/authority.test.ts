// What a request may do stands in its publisher's credential, and not in the answer subject that it names: the server does
// not look at that.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  encode,
  PermissionDeniedError,
  POOL_VERBS,
  poolSubject,
  replySubject,
} from "../../broker/contract/index.ts";
import { signerOf, signJwt } from "../../broker/credentials/index.ts";
import type { Link } from "../../broker/link/link.ts";
import {
  createOperatorKeys,
  type OperatorKeys,
  parseOperatorKeys,
  signAccount,
} from "../../broker/server/operator.ts";
import { GUARD_SUBJECT } from "../../broker/server/permissions.ts";
import { testServer, until } from "../../broker/server/testing.ts";
import { errorOf } from "../testing/errors.ts";
import { Caller, QUICK, TestMesh, testMesh } from "../testing/mesh.ts";

const EVERYTHING = { on: true, release_all: true };

describe("whatever answer subject it names", () => {
  let mesh: TestMesh;
  let [ann, bob, other]: Caller[] = [];
  const links: Record<string, Link> = {};
  const refused: string[] = [];
  beforeAll(async () => {
    mesh = await testMesh();
    [ann, bob, other] = await Promise.all([
      mesh.caller("ann"),
      mesh.caller("bob"),
      mesh.caller("eve", "other"),
    ]);
    const onError = (error: unknown) => void refused.push(String(error));
    const { server } = mesh;
    links.user = await server.user("acme", "mallory", { onError });
    links.observer = await server.observer("acme", { onError });
    links.sandbox = await server.sandbox("acme", "sb-mine", { onError });
    links.bootstrap = await server.bootstrap("acme", "sb-mine", { onError });
    links["operator of another tenant"] = await server.operator("third", "root", { onError });
  });
  afterAll(() => mesh[Symbol.asyncDispose]());

  /** Everybody's place in an answer subject: other users, whoever drains, roles that have a name there. */
  const USERS = ["ann", "bob", "root", "operator", "pool", "sb-mine", "sb-1", "observer", "nobody"];
  const replies = (tenant: string): string[] =>
    USERS.flatMap((user) => [
      replySubject(tenant, "pool", user, "x"),
      replySubject(tenant, "pool", user, "1.1"),
    ]);

  for (const who of ["user", "observer", "sandbox", "bootstrap", "operator of another tenant"]) {
    test(`${who} does not drain the pool, nor touch what is another tenant's`, async () => {
      const [mine, theirs] = await Promise.all([
        bob?.lease({ run: "mine" }),
        other?.lease({ run: "theirs" }),
      ]);
      if (mine === undefined || theirs === undefined) throw new Error("no sandboxes");
      const { sandbox, lease, run } = theirs;
      const bodies: Record<string, object[]> = {
        drain: [EVERYTHING],
        release: [{ sandbox }, { lease }, { run }],
        renew: [{ run, lease_ms: 1_000 }],
        confirm: [{ sandbox, generation: theirs.generation }],
      };
      const link = links[who];
      for (const reply of [...replies("acme"), ...replies("other"), ...replies("third")])
        for (const [verb, requests] of Object.entries(bodies))
          for (const body of requests) {
            link?.publish(poolSubject("acme", verb), encode(body), { reply });
            // The other's own tenant, which the server refuses.
            link?.publish(poolSubject("other", verb), encode(body), { reply });
          }
      await link?.flush();
      expect(await ann?.status()).toMatchObject({ draining: false });
      expect(mesh.provider.made.has(sandbox)).toBe(true);
      expect(mesh.provider.made.has(mine.sandbox)).toBe(true);
      expect((await other?.list({ sandbox }))?.sandboxes).toMatchObject([{ state: "leased", run }]);
      await Promise.all([bob?.release({ run: "mine" }), other?.release({ run })]);
    });
  }

  test("a user gets nothing by it within its tenant that it could not ask for in its own name", async () => {
    const heard: string[] = [];
    bob?.link.subscribe("rep.v1.acme.*.bob.>", (message) => heard.push(message.subject));
    await bob?.link.flush();
    const reply = replySubject("acme", "pool", "bob", "unknown.1");
    links.user?.publish(poolSubject("acme", "acquire"), encode({ spec: { image: "host" } }), { reply });
    // The answer goes to bob, whose client knows no such request.
    await until("the answer", () => heard.includes(reply));
    // Who names no run gets the one with the name that stands there; and says `run: "bob"` as well.
    expect(await ann?.release({ run: "bob" })).toMatchObject({ released: 1 });
    expect(await bob?.status()).toMatchObject({ draining: false });
  });

  test("each verb but drain is a user's, and drain is refused at once, typed, by the server", async () => {
    for (const verb of Object.keys(POOL_VERBS)) {
      const asked = links.user?.request("pool", poolSubject("acme", verb), encode({}), { timeoutMs: 60_000 });
      if (verb !== "drain") await asked;
      else {
        const error = await errorOf(asked ?? Promise.resolve());
        expect(error).toBeInstanceOf(PermissionDeniedError);
        expect(error).toMatchObject({ reason: "publish" });
      }
    }
  });

  test("an operator drains in its own name, also under another user's answer subject", async () => {
    const root = await mesh.operator();
    expect(await root.drain()).toMatchObject({ draining: true });
    const reply = replySubject("acme", "pool", "ann", "x");
    root.link.publish(poolSubject("acme", "drain"), encode({ on: false }), { reply });
    await until("it is over", async () => (await ann?.status())?.draining === false);
  });
});

/** The account as it was before there were operators. */
function formerAccount(keys: OperatorKeys): string {
  const claims = JSON.parse(Buffer.from(signAccount(keys).split(".")[1] ?? "", "base64url").toString("utf8"));
  const scopes: { role: string; template: { pub: { allow?: string[]; deny?: string[] } } }[] =
    claims.nats.signing_keys;
  for (const { role, template } of scopes) {
    if (role === "user") delete template.pub.deny;
    const { allow } = template.pub;
    if (role === "pool" && allow !== undefined)
      template.pub.allow = allow.filter((each) => each !== GUARD_SUBJECT);
  }
  claims.nats.signing_keys = scopes.filter(({ role }) => role !== "operator");
  return signJwt(
    { subject: claims.sub, name: claims.name, nats: claims.nats },
    signerOf(keys.operator, "operator"),
  );
}

test("in a mesh of before there were operators nobody drains, until its servers have the new accounts; what lives lives on", async () => {
  const stateDir = mkdtempSync(join(tmpdir(), "sandmesh-former-"));
  try {
    const { roles, ...rest } = createOperatorKeys();
    const { operator: _, ...former } = roles;
    const file = join(stateDir, "keys.json");
    writeFileSync(file, JSON.stringify({ ...rest, roles: former }), { mode: 0o600 });
    await using mesh = new TestMesh(await testServer({ stateDir }));
    const { keys } = parseOperatorKeys(readFileSync(file, "utf8"));
    expect({ ...keys.roles, operator: undefined }).toEqual({ ...former, operator: undefined });

    const config = join(stateDir, "nats-server.conf");
    const now = readFileSync(config, "utf8");
    const settings = JSON.parse(now);
    const account = mesh.server.keys.account;
    settings.resolver_preload[account] = formerAccount(keys);
    writeFileSync(config, JSON.stringify(settings));
    const reload = () => process.kill(mesh.server.server.pid, "SIGHUP");
    reload();
    const newcomer = () => errorOf(mesh.operator().then(() => undefined));
    await until("the former account", async () => (await newcomer()).code === "permission_denied");

    await mesh.start();
    const quiet = { onError: () => undefined, reconnect: QUICK };
    const ann = new Caller(await mesh.server.user("acme", "ann", quiet));
    const box = await ann.lease();
    const denied = await errorOf(ann.drain(EVERYTHING));
    expect(denied).toMatchObject({ code: "permission_denied", reason: "accounts" });
    expect(denied.message).toContain("reload NATS");

    writeFileSync(config, now);
    reload();
    const root = await until("the new account", () => mesh.operator().catch(() => undefined));
    // The pool and the users are cut, and come back at once: their scopes have changed.
    const { sandboxes } = await until("the pool is back", () => ann.list().catch(() => undefined));
    expect(sandboxes).toMatchObject([{ sandbox: box.sandbox, state: "leased" }]);
    expect(await errorOf(ann.drain(EVERYTHING))).toMatchObject({
      code: "permission_denied",
      reason: "publish",
    });
    await until("the pool has it too", () => root.drain().catch(() => undefined));
    expect(await root.drain({ on: false })).toMatchObject({ draining: false, remaining: 1 });
    await ann.release({ sandbox: box.sandbox });
  } finally {
    rmSync(stateDir, { recursive: true });
  }
});
