// Questions and their answers over a link, to a real server.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  CanceledError,
  ConnectionError,
  DeadlineError,
  InvalidRequestError,
  PermissionDeniedError,
  TooLargeError,
  UnreachableError,
} from "../contract/index.ts";
import { type TestServer, testServer, until } from "../server/testing.ts";
import type { Link } from "./link.ts";
import { body, echo, newSandbox, quick } from "./testing.ts";

let server: TestServer;
beforeAll(async () => {
  server = await testServer();
});
afterAll(() => server.close());

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
    await echo(server, sandbox);
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
