// The way to a server: with which credential, at which address, by which way. Against a real one.
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, connect as dial, type Server as NetServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ConnectionError, InvalidRequestError, PermissionDeniedError } from "../contract/index.ts";
import { createUserKey, formatCreds, identityOf } from "../credentials/index.ts";
import { findNatsCli } from "../server/index.ts";
import { type TestServer, testServer, until } from "../server/testing.ts";
import { connect } from "./connect.ts";
import { body, echo, newSandbox, quick } from "./testing.ts";

let server: TestServer;
beforeAll(async () => {
  server = await testServer();
});
afterAll(() => server.close());

describe("a credential that is wrong is refused with its cause:", () => {
  const attempt = async (credentials: Parameters<typeof connect>[0]["credentials"]) =>
    connect({ urls: [server.url], credentials, patient: true }).then(
      () => "connected",
      (error: unknown) => error,
    );

  test("expired", async () => {
    const expired = server.keys.mintUser({ tenant: "acme", user: "ann", ttlMs: 1 });
    const { expiresAtMs = 0 } = identityOf(expired.jwt);
    await until("its time is over", () => Date.now() > expiresAtMs + 1_000);
    expect(await attempt(expired)).toBeInstanceOf(PermissionDeniedError);
  });

  test("of another mesh", async () => {
    await using other = await testServer();
    expect(await attempt(other.keys.mintUser({ tenant: "acme", user: "ann" }))).toBeInstanceOf(
      PermissionDeniedError,
    );
  });

  test("a JWT with someone else's key", async () => {
    const { jwt } = server.keys.mintUser({ tenant: "acme", user: "ann" });
    expect(await attempt({ jwt, seed: createUserKey().seed })).toBeInstanceOf(PermissionDeniedError);
  });

  test("damaged", async () => {
    const { jwt, seed } = server.keys.mintUser({ tenant: "acme", user: "ann" });
    expect(await attempt({ jwt: "nonsense", seed })).toBeInstanceOf(InvalidRequestError);
    expect(await attempt({ jwt, seed: "nonsense" })).toBeInstanceOf(InvalidRequestError);
  });

  test("and one that expires later is replaced at the return, by the function that gives it", async () => {
    const sandbox = newSandbox();
    await echo(server, sandbox);
    const minted: string[] = [];
    const link = await server.connect(
      () => {
        const credentials = server.keys.mintUser({ tenant: "acme", user: "ann", ttlMs: 1_000 });
        minted.push(credentials.jwt);
        return credentials;
      },
      { reconnect: { firstMs: 1 } },
    );
    const status: boolean[] = [];
    link.onStatus((connected) => status.push(connected));
    await until("it was cut and came back", () => status.includes(false) && status.at(-1) === true);
    expect(minted.length).toBeGreaterThan(2);
    const answer = await link.request(sandbox, `sbx.v1.acme.${sandbox}.x`, body("still here"), quick);
    expect(Buffer.from(answer.data).toString()).toBe("still here");
    await link.close();
  });
});

test("addresses that are none, or where nobody or something else listens, are told", async () => {
  const credentials = server.keys.mintUser({ tenant: "acme", user: "ann" });
  for (const urls of [
    [],
    ["http://127.0.0.1:1"],
    ["127.0.0.1:4222"],
    ["nats://user@host:1"],
    ["nats://a b"],
  ]) {
    await expect(connect({ urls, credentials })).rejects.toBeInstanceOf(InvalidRequestError);
  }
  const silent = createServer((socket) => socket.on("error", () => {}));
  const other = createServer((socket) => {
    socket.on("error", () => {});
    socket.end("HTTP/1.1 400 Bad Request\r\n\r\n");
  });
  try {
    const portOf = (listener: NetServer) =>
      new Promise<number>((ready) => {
        listener.listen(0, "127.0.0.1", () => ready((listener.address() as { port: number }).port));
      });
    const silentUrl = `nats://127.0.0.1:${await portOf(silent)}`;
    const otherUrl = `nats://127.0.0.1:${await portOf(other)}`;
    await expect(connect({ urls: [silentUrl], credentials, connectTimeoutMs: 50 })).rejects.toBeInstanceOf(
      ConnectionError,
    );
    await expect(connect({ urls: [otherUrl], credentials })).rejects.toBeInstanceOf(ConnectionError);
    await expect(connect({ urls: [server.url.replace("nats:", "tls:")], credentials })).rejects.toThrow(
      /no TLS/,
    );
    other.close();
    await expect(connect({ urls: [otherUrl], credentials })).rejects.toBeInstanceOf(ConnectionError);
    const reached = await server.connect(credentials, { urls: [otherUrl, server.url] });
    await reached.flush();
  } finally {
    silent.close();
    other.close();
  }
});

describe("over a relay (a unix socket)", () => {
  const folder = mkdtempSync(join(tmpdir(), "sandmesh-relay-"));
  const sockets = new Set<Socket>();
  let relay: NetServer | undefined;
  afterEach(() => {
    relay?.close();
    for (const socket of sockets) socket.destroy();
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test("requests work, and the connection comes back after the relay was cut", async () => {
    const path = join(folder, "nats.sock");
    relay = createServer((down) => {
      const up = dial({ host: "127.0.0.1", port: server.port });
      for (const socket of [down, up]) {
        sockets.add(socket);
        socket.on("error", () => {});
      }
      down.pipe(up);
      up.pipe(down);
    });
    await new Promise<void>((ready) => relay?.listen(path, ready));
    const sandbox = newSandbox();
    await echo(server, sandbox);
    const link = await server.user("acme", "ann", {
      // The address is not used: where the relay leads is the relay's to know.
      urls: ["nats://nowhere.invalid:4222"],
      relay: path,
      reconnect: { firstMs: 1 },
    });
    const ask = () => link.request(sandbox, `sbx.v1.acme.${sandbox}.x`, body("hello"), quick);
    expect(Buffer.from((await ask()).data).toString()).toBe("hello");
    const back = new Promise<void>((done) => link.onStatus((connected) => connected && done()));
    for (const socket of sockets) socket.destroy();
    await back;
    expect(Buffer.from((await ask()).data).toString()).toBe("hello");
  });
});

test(
  "the nats command line makes a request with a minted .creds file and an inbox prefix of ours",
  async () => {
    const cli = await findNatsCli();
    const sandbox = newSandbox();
    await echo(server, sandbox);
    const folder = mkdtempSync(join(tmpdir(), "sandmesh-cli-"));
    try {
      const creds = join(folder, "ann.creds");
      await Bun.write(creds, formatCreds(server.keys.mintUser({ tenant: "acme", user: "ann" })));
      const prefix = `rep.v1.acme.${sandbox}.ann`;
      const command = [
        cli,
        "--server",
        server.url,
        "--creds",
        creds,
        "--inbox-prefix",
        prefix,
        "--no-context",
      ];
      const child = Bun.spawn(
        [...command, "req", "--raw", `sbx.v1.acme.${sandbox}.exec`, '{"argv":["id"]}'],
        {
          env: { ...process.env, HOME: folder, XDG_CONFIG_HOME: folder },
          stdout: "pipe",
          stderr: "pipe",
        },
      );
      const [out, err] = [await new Response(child.stdout).text(), await new Response(child.stderr).text()];
      expect({ code: await child.exited, out: out.trim(), err }).toEqual({
        code: 0,
        out: '{"argv":["id"]}',
        err,
      });
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  },
  20 * 60_000,
);
