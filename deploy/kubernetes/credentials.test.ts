// The Secrets that the chart mounts, in a real nats-server as the chart configures it.
import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { NotFoundError, poolSubject, toSandmeshError } from "../../broker/contract/index.ts";
import { type Credentials, decodeJwt, parseCreds } from "../../broker/credentials/index.ts";
import { connect } from "../../broker/link/connect.ts";
import { findServerBinary, KeyRing } from "../../broker/server/index.ts";
import { until } from "../../broker/server/testing.ts";
import { meshSecrets, mintUser, type Secret } from "./credentials.ts";

let work: string;
let server: { kill(signal: NodeJS.Signals): void; exited: Promise<number> } | undefined;
beforeEach(() => {
  work = mkdtempSync(join(tmpdir(), "sandmesh-credentials-"));
});
afterEach(async () => {
  server?.kill("SIGKILL");
  await server?.exited;
  server = undefined;
  rmSync(work, { recursive: true, force: true });
});

const stateDir = (): string => join(work, "keys");
const secrets = (tls: boolean): Secret[] =>
  meshSecrets({ stateDir: stateDir(), release: "r", namespace: "n", tls, hosts: ["127.0.0.1"] });

function dataOf(all: readonly Secret[], name: string): Record<string, string> {
  const found = all.find(({ metadata }) => metadata.name === name);
  if (found === undefined) throw new Error(`no Secret ${name}`);
  return found.stringData;
}

async function startServer(all: readonly Secret[]): Promise<string> {
  for (const { stringData } of all) {
    for (const [key, content] of Object.entries(stringData)) writeFileSync(join(work, key), content);
  }
  const conf = `listen: "127.0.0.1:-1"\nports_file_dir: "${work}"\ntls: {cert_file: "${work}/tls.crt", key_file: "${work}/tls.key"}\ninclude "auth.conf"\n`;
  writeFileSync(join(work, "nats.conf"), conf);
  server = Bun.spawn([await findServerBinary(), "-c", join(work, "nats.conf")], {
    stdio: ["ignore", "ignore", "ignore"],
  });
  const file = await until("its ports", () => readdirSync(work).find((name) => name.endsWith(".ports")));
  const { nats } = await until("its port", () =>
    Bun.file(join(work, file))
      .json()
      .catch(() => undefined),
  );
  return String(nats[0]).replace(/^nats:/, "tls:");
}

const open = (url: string, credentials: Credentials, ca: string) =>
  connect({ urls: [url], credentials: () => credentials, ca, name: "test", connectTimeoutMs: 5_000 });

test("a server with these Secrets takes the pool's and a trainer's credential, and no other mesh's", async () => {
  const all = secrets(true);
  const url = await startServer(all);
  const ca = dataOf(all, "r-pool")["ca.crt"] ?? "";
  const pool = await open(url, parseCreds(dataOf(all, "r-pool")["pool.creds"] ?? ""), ca);
  await pool.close();
  const user = parseCreds(mintUser({ stateDir: stateDir(), tenant: "acme", user: "ann" }));
  await (await open(url, user, ca)).close();
  const other = meshSecrets({
    stateDir: join(work, "other"),
    release: "r",
    namespace: "n",
    tls: true,
    hosts: [],
  });
  const foreign = parseCreds(dataOf(other, "r-pool")["pool.creds"] ?? "");
  await expect(open(url, foreign, ca)).rejects.toThrow();
  await expect(open(url, user, dataOf(other, "r-pool")["ca.crt"] ?? "")).rejects.toThrow();
});

test("the same keys give the same mesh, so that what runs goes on when the Secrets are applied again", () => {
  const first = secrets(true);
  const second = secrets(true);
  expect(dataOf(second, "r-pool")["keys.json"]).toBe(dataOf(first, "r-pool")["keys.json"] ?? "");
  expect(dataOf(second, "r-pool")["ca.crt"]).toBe(dataOf(first, "r-pool")["ca.crt"] ?? "");
  expect(dataOf(second, "r-nats")["route-password"]).toBe(dataOf(first, "r-nats")["route-password"] ?? "");
});

test("neither the operator's nor the accounts' own keys leave the folder, which is its owner's alone", () => {
  const text = JSON.stringify(secrets(true));
  expect(text).not.toMatch(/"SO[A-Z2-7]{56}"/);
  const ring = KeyRing.parse(dataOf(secrets(true), "r-pool")["keys.json"] ?? "");
  expect(() => ring.mintUser({ tenant: "acme", user: "ann" })).toThrow("no key to mint the role user");
  expect(() => ring.mintPool()).toThrow("no key to mint the role pool");
  expect(statSync(stateDir()).mode & 0o777).toBe(0o700);
  for (const name of readdirSync(stateDir())) {
    expect([name, statSync(join(stateDir(), name)).mode & 0o777]).toEqual([name, 0o600]);
  }
});

test("without TLS nothing of it is made", () => {
  const all = secrets(false);
  expect(all.map(({ metadata }) => metadata.name)).toEqual(["r-nats", "r-pool"]);
  expect(dataOf(all, "r-pool")["ca.crt"]).toBeUndefined();
});

test("a trainer's credential is of the asked time, and needs the mesh's keys", () => {
  expect(() => mintUser({ stateDir: stateDir(), tenant: "acme", user: "ann" })).toThrow(NotFoundError);
  secrets(false);
  const { exp, iat } = decodeJwt(
    parseCreds(mintUser({ stateDir: stateDir(), tenant: "acme", user: "ann", ttlMs: 60_000 })).jwt,
  );
  // In whole seconds, never less.
  expect([60, 61]).toContain((exp ?? 0) - (iat ?? 0));
});

test("keys of before there were operators get one of theirs with the next Secrets, and keep all else", async () => {
  const told: string[] = [];
  const again = () =>
    meshSecrets({
      stateDir: stateDir(),
      release: "r",
      namespace: "n",
      tls: true,
      hosts: ["127.0.0.1"],
      log: (line) => told.push(line),
    });
  const before = again();
  const path = join(stateDir(), "keys.json");
  const { roles, ...rest } = JSON.parse(readFileSync(path, "utf8"));
  const { operator: _, ...former } = roles;
  writeFileSync(path, JSON.stringify({ ...rest, roles: former }));
  const ann = parseCreds(mintUser({ stateDir: stateDir(), tenant: "acme", user: "ann" }));
  const asOperator = () => mintUser({ stateDir: stateDir(), tenant: "acme", user: "root", operator: true });
  // No server would know it; and a key that is made now would be another one than the Secrets'.
  expect(asOperator).toThrow(/sandmesh kubernetes credentials/);
  expect(told).toEqual([]);

  const all = again();
  expect(told).toEqual([expect.stringContaining("reload each NATS server")]);
  expect(again()).toHaveLength(all.length);
  expect(told).toHaveLength(1);
  expect(dataOf(all, "r-pool")["keys.json"]).toBe(dataOf(before, "r-pool")["keys.json"] ?? "");
  const url = await startServer(all);
  const ca = dataOf(all, "r-pool")["ca.crt"] ?? "";
  const drain = async (credentials: Credentials) => {
    const link = await open(url, credentials, ca);
    const asked = link.request("pool", poolSubject("acme", "drain"), new Uint8Array(), { timeoutMs: 5_000 });
    const { code } = await asked.then(
      () => ({ code: "answered" }),
      (error: unknown) => toSandmeshError(error),
    );
    await link.close();
    return code;
  };
  expect(await drain(ann)).toBe("permission_denied");
  // It may ask; there is no pool here.
  expect(await drain(parseCreds(asOperator()))).toBe("unreachable");
});

test("damaged keys are told with their file and what to do, and are not made anew", () => {
  secrets(false);
  const path = join(stateDir(), "keys.json");
  writeFileSync(path, '{"operator": "SO');
  for (const use of [
    () => secrets(false),
    () => mintUser({ stateDir: stateDir(), tenant: "acme", user: "ann" }),
  ])
    expect(use).toThrow(new RegExp(`${path} is damaged .*put a copy of it back`));
});
