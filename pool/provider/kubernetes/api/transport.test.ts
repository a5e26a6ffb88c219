// The transport against a server of HTTP whose every answer is the test's own, on real sockets.
import { afterEach, expect, test } from "bun:test";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { until } from "../../../../broker/server/testing.ts";
import { errorOf } from "../../../testing/errors.ts";
import type { Access } from "./access.ts";
import { PodApi } from "./pods.ts";
import { backoffMs, Transport } from "./transport.ts";

const servers: Server[] = [];
const transports: Transport[] = [];
afterEach(() => {
  for (const transport of transports.splice(0)) transport.close();
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});

type Answer = (request: IncomingMessage, response: ServerResponse) => void;
const signal = new AbortController().signal;
const GET = { method: "GET" as const, path: "/api/v1/pods" };

/** A server that gives one answer after the other, the last one for ever. */
async function against(answers: Answer[], limits = { maxRequests: 4, requestTimeoutMs: 5_000 }) {
  const seen: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    const answer = answers[Math.min(seen.length, answers.length - 1)];
    seen.push(request);
    request.resume();
    answer?.(request, response);
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  let asked = 0;
  const access: Access = {
    server: new URL(`http://127.0.0.1:${port}/prefix/`),
    proxied: false,
    close: () => undefined,
    async credentials(anew = false) {
      if (anew) asked++;
      return { headers: { authorization: `Bearer token-${asked}` } };
    },
  };
  const transport = new Transport(access, limits);
  transports.push(transport);
  return { transport, seen, ask: (repeatable = true) => transport.request(GET, signal, repeatable) };
}

const json =
  (status: number, body: object = {}, headers: Record<string, string> = {}): Answer =>
  (_request, response) => {
    response.writeHead(status, { "content-type": "application/json", ...headers });
    response.end(JSON.stringify(body));
  };
const cut: Answer = (_request, response) => void response.socket?.destroy();
const never: Answer = () => undefined;

test("an answer is parsed, and a path below which the API server is kept", async () => {
  const { ask, seen } = await against([json(200, { a: 1 })]);
  expect(await ask()).toEqual({ status: 200, body: { a: 1 } });
  expect(seen[0]?.url).toBe("/prefix/api/v1/pods");
});

test("429: what is asked for is waited for, by all requests, and then there is an answer", async () => {
  const { transport, ask } = await against([json(429, {}, { "retry-after": "1" }), json(200)]);
  const began = performance.now();
  const first = ask();
  await until("the refusal", () => transport.counters.throttled === 1);
  const second = ask();
  expect((await Promise.all([first, second])).map(({ status }) => status)).toEqual([200, 200]);
  expect(performance.now() - began).toBeGreaterThanOrEqual(1_000);
  expect(transport.counters).toMatchObject({ sent: 3, throttled: 1 });
});

test("an expired token is read anew and the request sent again, once: a refusal that stays is answered", async () => {
  const { ask, seen } = await against([json(401), json(200)]);
  expect((await ask()).status).toBe(200);
  expect(seen.map(({ headers }) => headers.authorization)).toEqual(["Bearer token-0", "Bearer token-1"]);
  const stays = await against([json(401)]);
  expect((await stays.ask()).status).toBe(401);
  expect(stays.seen).toHaveLength(2);
});

test("a connection that is cut, or a server that is starting, is tried again where that does no harm", async () => {
  const { ask, seen } = await against([cut, json(503), json(201)]);
  expect((await ask()).status).toBe(201);
  expect(seen).toHaveLength(3);
});

test("an API server whose etcd gave no answer is asked again where that does no harm, and its next refusal proves nothing", async () => {
  const late = json(500, { reason: "InternalError", message: "etcdserver: request timed out" });
  const { ask } = await against([late, json(504, { reason: "Timeout", message: "" }), json(403, {})]);
  expect(await ask()).toMatchObject({ status: 403, afterUnanswered: true });
  const once = await against([late]);
  expect(await once.ask(false)).toMatchObject({ status: 500, afterUnanswered: true });
  const webhook = json(500, { reason: "InternalError", message: "failed calling webhook" });
  const refused = await against([webhook]);
  expect(await refused.ask()).toMatchObject({ status: 500 });
  expect(refused.seen).toHaveLength(1);
});

test("an API server that has started and read no roles yet is asked again, for what it allowed before", async () => {
  const message = 'pods is forbidden: User "pool" cannot list resource "pods" in API group ""';
  const forbidden = json(403, { message });
  const { transport, seen } = await against([forbidden, json(200), forbidden, forbidden, json(201)]);
  const ask = () => transport.request({ ...GET, right: "list pods" }, signal, true);
  expect((await ask()).status).toBe(403);
  expect((await ask()).status).toBe(200);
  expect((await ask()).status).toBe(201);
  expect(seen).toHaveLength(5);
});

test("what may have been done is not sent twice: the caller hears that it is unknown", async () => {
  const { ask, seen } = await against([cut]);
  await expect(ask(false)).rejects.toMatchObject({ code: "provider_failed", reason: "unreachable" });
  expect(seen).toHaveLength(1);
});

test("a server that is frozen ends no request later than its time-out says", async () => {
  const { ask } = await against([never], { maxRequests: 1, requestTimeoutMs: 50 });
  await expect(ask(false)).rejects.toMatchObject({ reason: "unreachable" });
});

test("a frozen answer in the midst of its body is timed out as well", async () => {
  const half: Answer = (_request, response) => {
    response.writeHead(200, { "content-length": "100" });
    response.write("{");
  };
  const { ask } = await against([half], { maxRequests: 1, requestTimeoutMs: 50 });
  await expect(ask(false)).rejects.toMatchObject({ reason: "unreachable" });
});

test("no more than maxRequests are there at once; those that wait go in their order, reads before all writes, and one that leaves holds up none", async () => {
  const open: ServerResponse[] = [];
  const { transport, seen } = await against([(_request, response) => void open.push(response)], {
    maxRequests: 2,
    requestTimeoutMs: 5_000,
  });
  const leaving = new AbortController();
  const ask = (path: string, by = signal, method: "GET" | "POST" = "POST") =>
    transport.request({ method, path: `/${path}` }, by, false).then(
      () => path,
      () => `${path} left`,
    );
  const all = [
    ask("a"),
    ask("b"),
    ask("c", leaving.signal),
    ask("d"),
    ask("e", signal, "GET"),
    ask("f", signal, "GET"),
  ];
  await until("two requests", () => open.length === 2);
  leaving.abort();
  expect(await all[2]).toBe("c left");
  for (let i = 0; i < 5; i++) {
    await until("the next request", () => open.length > i);
    expect(open.length).toBeLessThanOrEqual(i + 2);
    open[i]?.end("{}");
  }
  expect(await Promise.all(all)).toEqual(["a", "b", "c left", "d", "e", "f"]);
  const order = seen.map(({ url }) => url?.at(-1));
  expect(order.slice(2)).toEqual(["e", "f", "d"]);
});

test("lines of a watch come whole, also where they are cut anywhere between", async () => {
  const { transport } = await against([
    async (_request, response) => {
      response.writeHead(200);
      for (const part of ['{"a":', '1}\n{"b', '":"ä', '"}\n']) {
        response.write(part);
        await Bun.sleep(1);
      }
      response.end();
    },
  ]);
  const found: (string | Uint8Array)[] = [];
  for await (const line of transport.watch({ path: "/watch" }, signal, 5_000)) found.push(line);
  expect(found).toEqual(['{"a":1}', '{"b":"ä"}']);
});

test("a watch that is refused says with which status; one that falls silent ends", async () => {
  const refused = await against([json(410)]);
  const first = refused.transport.watch({ path: "/watch" }, signal, 5_000).next();
  await expect(first).rejects.toMatchObject({ status: 410 });
  const silent = await against([
    (_request, response) => {
      response.writeHead(200);
      response.write("{}\n");
    },
  ]);
  // The first line has no more time than the others, and on a busy machine it may need more.
  const begun = async (silentMs: number) => {
    const lines = silent.transport.watch({ path: "/watch" }, signal, silentMs);
    const first = await lines.next().catch((error: unknown) => {
      if (silentMs > 10_000) throw error;
    });
    if (first === undefined) return await begun(2 * silentMs);
    expect(first.value).toBe("{}");
    return lines;
  };
  await expect((await begun(50)).next()).rejects.toThrow();
});

test("tries come further and further apart, never at the same time for all, never more than some seconds", () => {
  for (let tries = 1; tries < 40; tries++) {
    const ms = backoffMs(tries);
    expect(ms).toBeGreaterThanOrEqual(Math.min(5_000, 100 * 2 ** (tries - 1)) / 2);
    expect(ms).toBeLessThanOrEqual(7_500);
  }
});

test("a refusal after a try without an answer does not say that nothing was made", async () => {
  const full = json(403, { reason: "Forbidden", message: "exceeded quota: pods" });
  const creating = async (answers: Answer[]) => {
    const { transport } = await against(answers);
    const pods = new PodApi(transport, "boxes", "sandmesh.dev/mesh=m");
    return await errorOf(pods.create({}, "sb-1", signal));
  };
  expect((await creating([full])).code).toBe("quota_exceeded");
  expect(await creating([cut, full])).toMatchObject({ code: "provider_failed", reason: "refused" });
});
