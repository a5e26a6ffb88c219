import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, connect as dial, type Server as NetServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  CanceledError,
  ConnectionError,
  DeadlineError,
  InvalidRequestError,
  PermissionDeniedError,
  TooLargeError,
  UnreachableError,
} from "../contract/index.ts";
import { createUserKey, formatCreds, identityOf } from "../credentials/index.ts";
import { findNatsCli } from "../server/index.ts";
import { type TestServer, testServer, until } from "../server/testing.ts";
import { connect } from "./connect.ts";
import type { Link } from "./link.ts";

let server: TestServer;
beforeAll(async () => {
  server = await testServer();
});
afterAll(() => server.close());

/** Each test's own sandbox, so that none hears another's. */
let count = 0;
const newSandbox = () => `sb-${++count}`;
const body = (text: string) => Buffer.from(text);
const quick = { timeoutMs: 10_000 };

async function echo(sandbox: string): Promise<Link> {
  const box = await server.sandbox("acme", sandbox);
  box.subscribe(`sbx.v1.acme.${sandbox}.*`, (message) => message.respond(message.data));
  await box.flush();
  return box;
}

describe("a request", () => {
  test("is answered, headers and all", async () => {
    const sandbox = newSandbox();
    const box = await server.sandbox("acme", sandbox);
    box.subscribe(`sbx.v1.acme.${sandbox}.*`, (message) => {
      message.respond(body(`${message.header("timeout-ms")} ${message.data.length}`), {
        "Sandmesh-Status": "7",
      });
    });
    await box.flush();
    const user = await server.user();
    const answer = await user.request(sandbox, `sbx.v1.acme.${sandbox}.sh`, new Uint8Array(3), {
      ...quick,
      headers: { "Timeout-Ms": "500" },
    });
    expect(Buffer.from(answer.data).toString()).toBe("500 3");
    expect(answer.header("sandmesh-status")).toBe("7");
    expect(answer.header("other")).toBeUndefined();
    expect(answer.subject).toStartWith(`rep.v1.acme.${sandbox}.ann.`);
    expect(answer.reply).toBeUndefined();
  });

  test("to nobody fails at once, with the sandbox named", async () => {
    const user = await server.user();
    const sandbox = newSandbox();
    const failed = user.request(sandbox, `sbx.v1.acme.${sandbox}.ping`, body(""), { timeoutMs: 3600_000 });
    const error = await failed.catch((e: unknown) => e);
    expect(error).toBeInstanceOf(UnreachableError);
    expect((error as UnreachableError).sandbox).toBe(sandbox);
  });

  test("that is refused fails at once, not at its deadline", async () => {
    const user = await server.user();
    const failed = user.request("sb-1", "sbx.v1.other.sb-1.ping", body(""), { timeoutMs: 3600_000 });
    await expect(failed).rejects.toBeInstanceOf(PermissionDeniedError);
  });

  test("without an answer ends at its deadline, each at its own", async () => {
    const sandbox = newSandbox();
    const box = await server.sandbox("acme", sandbox);
    box.subscribe(`sbx.v1.acme.${sandbox}.*`, () => {});
    await box.flush();
    const user = await server.user();
    const order: number[] = [];
    await Promise.all(
      [90, 30, 60].map((timeoutMs) =>
        user
          .request(sandbox, `sbx.v1.acme.${sandbox}.ping`, body(""), { timeoutMs })
          .catch((error: unknown) => {
            expect(error).toBeInstanceOf(DeadlineError);
            order.push(timeoutMs);
          }),
      ),
    );
    expect(order).toEqual([30, 60, 90]);
  });

  test("is canceled by its signal, before and during", async () => {
    const sandbox = newSandbox();
    const box = await server.sandbox("acme", sandbox);
    const arrived = new Promise<void>((seen) => {
      box.subscribe(`sbx.v1.acme.${sandbox}.*`, () => seen());
    });
    await box.flush();
    const user = await server.user();
    const ask = (signal: AbortSignal) =>
      user.request(sandbox, `sbx.v1.acme.${sandbox}.ping`, body(""), { ...quick, signal });
    await expect(ask(AbortSignal.abort())).rejects.toBeInstanceOf(CanceledError);
    const controller = new AbortController();
    const waiting = ask(controller.signal);
    await arrived;
    controller.abort();
    await expect(waiting).rejects.toBeInstanceOf(CanceledError);
  });

  test("that is too large, or breaks out of the protocol's line, is refused here", async () => {
    const user = await server.user();
    const large = new Uint8Array(user.maxPayload + 1);
    await expect(user.request("sb-1", "sbx.v1.acme.sb-1.x", large, quick)).rejects.toBeInstanceOf(
      TooLargeError,
    );
    for (const subject of ["", "sbx.v1.acme.sb-1.x 1\r\nPUB a 1", "sbx v1"]) {
      await expect(user.request("sb-1", subject, body(""), quick)).rejects.toBeInstanceOf(
        InvalidRequestError,
      );
      expect(() => user.publish(subject, body(""))).toThrow(InvalidRequestError);
      expect(() => user.subscribe(subject, () => {})).toThrow(InvalidRequestError);
    }
    expect(() => user.publish("sbx.v1.acme.sb-1.x", body(""), { reply: "a b" })).toThrow(InvalidRequestError);
    expect(() => user.publish("sbx.v1.acme.sb-1.x", body(""), { headers: { a: "b\r\nc: d" } })).toThrow(
      InvalidRequestError,
    );
  });

  test("is not answered by a late answer to an earlier one", async () => {
    const sandbox = newSandbox();
    const box = await server.sandbox("acme", sandbox);
    const late: (() => void)[] = [];
    box.subscribe(`sbx.v1.acme.${sandbox}.*`, (message) => {
      if (message.subject.endsWith("slow")) late.push(() => message.respond(body("slow")));
      else {
        for (const answer of late.splice(0)) answer();
        message.respond(body("fast"));
      }
    });
    await box.flush();
    const user = await server.user();
    const slow = user.request(sandbox, `sbx.v1.acme.${sandbox}.slow`, body(""), { timeoutMs: 20 });
    await expect(slow).rejects.toBeInstanceOf(DeadlineError);
    const fast = await user.request(sandbox, `sbx.v1.acme.${sandbox}.fast`, body(""), quick);
    expect(Buffer.from(fast.data).toString()).toBe("fast");
  });

  test("of one user's connection is not heard by the user's other connections", async () => {
    const sandbox = newSandbox();
    await echo(sandbox);
    const [one, two] = [await server.user(), await server.user()];
    const ask = (link: Link, text: string) =>
      link.request(sandbox, `sbx.v1.acme.${sandbox}.x`, body(text), quick);
    const answers = await Promise.all(
      Array.from({ length: 200 }, (_, i) => ask(i % 2 === 0 ? one : two, String(i))),
    );
    expect(answers.map((answer) => Number(Buffer.from(answer.data).toString()))).toEqual(
      Array.from({ length: 200 }, (_, i) => i),
    );
  });

  test("of the pool and of a booting daemon find their way back", async () => {
    const sandbox = newSandbox();
    const box = await server.sandbox("acme", sandbox);
    box.subscribe(`ctl.v1.acme.${sandbox}.*`, (message) => message.respond(body("to the pool")));
    await box.flush();
    const pool = await server.pool();
    pool.subscribe("enr.v1.*.*", (message) => message.respond(body("enrolled")), { queue: "pool" });
    await pool.flush();
    const controlled = await pool.request(sandbox, `ctl.v1.acme.${sandbox}.renew`, body(""), quick);
    expect(Buffer.from(controlled.data).toString()).toBe("to the pool");
    const daemon = await server.bootstrap("acme", sandbox);
    const enrolled = await daemon.request("pool", `enr.v1.acme.${sandbox}`, body(""), quick);
    expect(Buffer.from(enrolled.data).toString()).toBe("enrolled");
  });
});

describe("a stream", () => {
  test("hands over every answer in order, also those that came before it was read", async () => {
    const sandbox = newSandbox();
    const box = await server.sandbox("acme", sandbox);
    box.subscribe(`sbx.v1.acme.${sandbox}.*`, (message) => {
      for (let i = 0; i < 3000; i++) message.respond(body(String(i)));
    });
    await box.flush();
    const user = await server.user();
    const stream = user.stream(sandbox, `sbx.v1.acme.${sandbox}.x`, body(""), quick);
    const seen: number[] = [];
    for await (const message of stream) {
      expect(message.subject).toEndWith(stream.token);
      if (seen.push(Number(Buffer.from(message.data).toString())) === 3000) break;
    }
    expect(seen).toEqual(Array.from({ length: 3000 }, (_, i) => i));
  });

  test("fails where nobody listens, where it is canceled, and where the next answer does not come", async () => {
    const user = await server.user();
    const read = async (stream: AsyncIterable<unknown>) => {
      for await (const _ of stream);
    };
    const sandbox = newSandbox();
    const subject = `sbx.v1.acme.${sandbox}.x`;
    await expect(read(user.stream(sandbox, subject, body(""), quick))).rejects.toBeInstanceOf(
      UnreachableError,
    );
    const box = await server.sandbox("acme", sandbox);
    box.subscribe(`sbx.v1.acme.${sandbox}.*`, (message) => message.respond(body("one")));
    await box.flush();
    const stalled = read(user.stream(sandbox, subject, body(""), { timeoutMs: 50 }));
    await expect(stalled).rejects.toBeInstanceOf(DeadlineError);
    const controller = new AbortController();
    const stream = user.stream(sandbox, subject, body(""), { ...quick, signal: controller.signal });
    const canceled = (async () => {
      for await (const _ of stream) controller.abort();
    })();
    await expect(canceled).rejects.toBeInstanceOf(CanceledError);
  });

  test("that is closed lets its reader go", async () => {
    const sandbox = newSandbox();
    const box = await server.sandbox("acme", sandbox);
    box.subscribe(`sbx.v1.acme.${sandbox}.*`, () => {});
    await box.flush();
    const user = await server.user();
    const stream = user.stream(sandbox, `sbx.v1.acme.${sandbox}.x`, body(""), quick);
    const next = stream[Symbol.asyncIterator]().next();
    stream.close();
    expect((await next).done).toBe(true);
  });
});

test("a sandbox cannot answer what another one, or the pool, was asked, though it knows the asker's numbers", async () => {
  const [liar, honest] = [newSandbox(), newSandbox()];
  const [pool, thief, box] = await Promise.all([
    server.pool(),
    server.sandbox("acme", liar),
    server.sandbox("acme", honest),
  ]);
  const user = await server.user();
  const heard = Promise.withResolvers<string>();
  thief.subscribe(`sbx.v1.acme.${liar}.*`, (message) => heard.resolve(message.reply ?? ""));
  await thief.flush();
  user.request(liar, `sbx.v1.acme.${liar}.x`, body(""), quick).catch(() => undefined);
  // `rep.v1.acme.<liar>.ann.<connection>.1`: those that come next have the numbers behind it.
  const mine = (await heard.promise).replace(/[^.]+$/, "");
  const lie = async (): Promise<void> => {
    for (const number of ["2", "3"]) thief.publish(mine + number, body("a lie"));
    await thief.flush();
  };
  const truth = async (link: Link, subject: string): Promise<void> => {
    link.subscribe(subject, async (message) => {
      await lie();
      message.respond(body("the truth"));
    });
    await link.flush();
  };
  await Promise.all([truth(pool, "pool.v1.acme.*"), truth(box, `sbx.v1.acme.${honest}.*`)]);
  const answer = await user.request("pool", "pool.v1.acme.list", body(""), quick);
  expect(Buffer.from(answer.data).toString()).toBe("the truth");
  const stream = user.stream(honest, `sbx.v1.acme.${honest}.x`, body(""), quick);
  for await (const message of stream) {
    expect(Buffer.from(message.data).toString()).toBe("the truth");
    break;
  }
});

test("what a handler throws ends neither the subscription nor the process", async () => {
  const errors: unknown[] = [];
  const sandbox = newSandbox();
  const box = await server.sandbox("acme", sandbox, { onError: (error) => errors.push(error) });
  box.subscribe(`sbx.v1.acme.${sandbox}.*`, (message) => {
    if (message.data.length === 0) throw new Error("a bug");
    message.respond(body("fine"));
  });
  await box.flush();
  const user = await server.user();
  user.publish(`sbx.v1.acme.${sandbox}.x`, body(""));
  await user.request(sandbox, `sbx.v1.acme.${sandbox}.x`, body("x"), quick);
  expect(String(errors)).toContain("a bug");
});

test("closing sends what was published, fails what is under way, and refuses what comes", async () => {
  const sandbox = newSandbox();
  const box = await server.sandbox("acme", sandbox);
  const got: string[] = [];
  box.subscribe(`sbx.v1.acme.${sandbox}.*`, (message) => got.push(Buffer.from(message.data).toString()));
  await box.flush();
  const user = await server.user();
  const waiting = user.request(sandbox, `sbx.v1.acme.${sandbox}.x`, body("asked"), quick);
  waiting.catch(() => {});
  user.publish(`sbx.v1.acme.${sandbox}.x`, body("last word"));
  await user.close();
  await expect(waiting).rejects.toBeInstanceOf(ConnectionError);
  await until("both arrived", () => got.length === 2);
  expect(await user.closed).toBeUndefined();
  await expect(user.request(sandbox, "sbx.v1.acme.x.y", body(""), quick)).rejects.toBeInstanceOf(
    ConnectionError,
  );
  expect(() => user.publish("sbx.v1.acme.x.y", body(""))).toThrow(ConnectionError);
});

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
    await echo(sandbox);
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
    await echo(sandbox);
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
    await echo(sandbox);
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
