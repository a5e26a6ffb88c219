// The pool's process: settings, statuses and signals.
import { expect, test } from "bun:test";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { formatCreds } from "../broker/credentials/index.ts";
import { createOperatorKeys, keyRingOf } from "../broker/server/operator.ts";
import { testServer, until } from "../broker/server/testing.ts";
import { Caller } from "./testing/mesh.ts";

const MAIN = join(import.meta.dir, "main.ts");

async function start(config: object | string) {
  const folder = await mkdtemp(join(tmpdir(), "sandmesh-pool-"));
  const file = join(folder, "config.json");
  await writeFile(file, typeof config === "string" ? config : JSON.stringify(config));
  const child = Bun.spawn([process.execPath, MAIN, "--config", file], { stdout: "pipe", stderr: "pipe" });
  return {
    child,
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await child.exited;
      await rm(folder, { recursive: true, force: true });
    },
  };
}

test("settings that cannot be end it with status 2, naming the one at fault", async () => {
  const base = {
    urls: ["nats://127.0.0.1:1"],
    credentialsFile: "/x",
    keysFile: "/x",
    providers: [{ name: "local" }],
  };
  const cases: [object | string, string][] = [
    ["{", "config.json"],
    [{ ...base, maxBooting: 0 }, "maxBooting"],
    [{ ...base, urls: [] }, "urls"],
    [{ ...base, providers: [] }, "providers"],
    [{ ...base, httpListen: "8080" }, "httpListen"],
    [{ ...base, recordReplicas: 2 }, "recordReplicas"],
    [{ ...base, keysFile: "/dev/zero" }, "keysFile: /dev/zero is larger than"],
    [{ ...base, caFile: "/dev/zero" }, "caFile: /dev/zero is larger than"],
  ];
  for (const [config, named] of cases) {
    await using pool = await start(config);
    expect(await pool.child.exited).toBe(2);
    expect(await new Response(pool.child.stderr).text()).toContain(named);
  }
});

test("over HTTP it is healthy and not ready while it waits for its first connection", async () => {
  const folder = await mkdtemp(join(tmpdir(), "sandmesh-pool-"));
  try {
    const keys = keyRingOf(createOperatorKeys());
    const credentialsFile = join(folder, "pool.creds");
    const keysFile = join(folder, "keys.json");
    await writeFile(credentialsFile, formatCreds(keys.mintPool()));
    await writeFile(keysFile, keys.format());
    await using pool = await start({
      urls: ["nats://127.0.0.1:1"],
      credentialsFile,
      keysFile,
      providers: [{ name: "simulated" }],
      httpListen: "127.0.0.1:0",
    });
    let said = "";
    for await (const part of pool.child.stdout.pipeThrough(new TextDecoderStream())) {
      said += part;
      if (said.includes("serving health")) break;
    }
    const url = /"url":"([^"]+)"/.exec(said)?.[1] ?? "";
    expect((await fetch(new URL("/healthz", url))).status).toBe(200);
    const ready = await fetch(new URL("/readyz", url));
    expect(ready.status).toBe(503);
    expect(await ready.text()).toBe("not ready: it is starting\n");
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test("it starts, answers, logs no secret, and stops at SIGTERM", async () => {
  await using server = await testServer();
  const folder = await mkdtemp(join(tmpdir(), "sandmesh-pool-"));
  try {
    const credentials = server.keys.mintPool();
    const credentialsFile = join(folder, "pool.creds");
    const keysFile = join(folder, "keys.json");
    await writeFile(credentialsFile, formatCreds(credentials));
    await writeFile(keysFile, server.keys.format());
    await chmod(folder, 0o700);
    const settings = { stateDir: join(folder, "local"), daemonDir: folder, natsUrl: server.url };
    await using pool = await start({
      urls: [server.url],
      credentialsFile,
      keysFile,
      providers: [{ name: "local", settings }],
      logLevel: "debug",
    });
    const ann = new Caller(await server.user());
    const status = await until("it answers", () => ann.status().catch(() => undefined), 30_000);
    expect(status).toMatchObject({
      pool: "pool",
      draining: false,
      providers: [{ name: "local", sandboxes: 0 }],
    });
    pool.child.kill("SIGTERM");
    expect(await pool.child.exited).toBe(0);
    const log =
      (await new Response(pool.child.stdout).text()) + (await new Response(pool.child.stderr).text());
    expect(log).toContain("the pool is ready");
    expect(log).not.toContain(credentials.seed);
    expect(log).not.toContain("SUA");
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});

test("its credential's file may be missing for a while: it goes on with what was in it", async () => {
  await using server = await testServer();
  const folder = await mkdtemp(join(tmpdir(), "sandmesh-pool-"));
  try {
    const credentialsFile = join(folder, "pool.creds");
    const keysFile = join(folder, "keys.json");
    await writeFile(credentialsFile, formatCreds(server.keys.mintPool()));
    await writeFile(keysFile, server.keys.format());
    await using pool = await start({
      urls: [server.url],
      credentialsFile,
      keysFile,
      providers: [{ name: "simulated" }],
    });
    const ann = new Caller(await server.user());
    const answers = () => ann.status().catch(() => undefined);
    await until("it answers", answers, 30_000);
    await rm(credentialsFile);
    await server.kill();
    await server.restart();
    await until("it answers again", answers, 30_000);
    expect(pool.child.exitCode).toBeNull();
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
});
