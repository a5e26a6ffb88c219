// The server dies and comes back: links come back by themselves, and whoever waits gets an answer or a typed error.
import { describe, expect, test } from "bun:test";
import { createServer, connect as dial, type Socket } from "node:net";
import { ConnectionError, DeadlineError } from "../contract/index.ts";
import { testServer, until } from "../server/testing.ts";
import { type Deadline, Deadlines } from "./deadlines.ts";
import type { Link } from "./link.ts";
import { reconnectDelayMs } from "./protocol.ts";

const body = (text: string) => Buffer.from(text);
const soon = { reconnect: { firstMs: 20, baseMs: 50, maxMs: 100 } };
const returned = (link: Link) =>
  new Promise<void>((done) => link.onStatus((connected) => connected && done()));

test("after kill -9 of the server all links come back with their subscriptions, and requests work", async () => {
  await using server = await testServer();
  const box = await server.sandbox("acme", "sb-1", soon);
  box.subscribe("sbx.v1.acme.sb-1.*", (message) => message.respond(message.data));
  await box.flush();
  const users = await Promise.all(Array.from({ length: 8 }, (_, i) => server.user("acme", `u${i}`, soon)));
  const ask = (user: Link, timeoutMs: number) =>
    user.request("sb-1", "sbx.v1.acme.sb-1.x", body("hello"), { timeoutMs });
  await Promise.all(users.map((user) => ask(user, 10_000)));
  const { url } = server;
  for (let round = 0; round < 3; round++) {
    const back = [box, ...users].map(returned);
    await server.kill();
    await server.restart();
    await Promise.all(back);
    expect(server.url).toBe(url);
    // The sandbox's link flushed its return before the users ask: nobody is unreachable.
    await box.flush();
    const answers = await Promise.all(users.map((user) => ask(user, 10_000)));
    expect(answers.map((answer) => Buffer.from(answer.data).toString())).toEqual(users.map(() => "hello"));
  }
});

/** A proxy that hangs up on the CONNECT of the next dials, as a server does that is just ending. */
async function hangingUp(url: string) {
  const sockets = new Set<Socket>();
  const hangUps = { left: 0, done: 0 };
  const info = { server_id: "x", version: "2.15.1", max_payload: 1024, proto: 1, headers: true, nonce: "x" };
  const proxy = createServer((down) => {
    sockets.add(down.on("error", () => {}));
    if (hangUps.left > 0) {
      hangUps.left--;
      down.write(`INFO ${JSON.stringify(info)}\r\n`);
      down.once("data", () => {
        hangUps.done++;
        down.destroy();
      });
      return;
    }
    const up = dial(Number(new URL(url).port), "127.0.0.1").on("error", () => {});
    sockets.add(up);
    down.pipe(up).pipe(down);
    down.on("close", () => up.destroy());
    up.on("close", () => down.destroy());
  });
  await new Promise<void>((ready) => proxy.listen(0, "127.0.0.1", ready));
  const address = proxy.address();
  if (address === null || typeof address === "string") throw new Error("the proxy has no port");
  const cut = () => {
    for (const socket of sockets) socket.destroy();
    sockets.clear();
  };
  const close = () => {
    cut();
    proxy.close();
  };
  /** As the server does to whom it has not heard for long. */
  const callStale = () => {
    for (const socket of sockets) socket.end("-ERR 'Stale Connection'\r\n");
    sockets.clear();
  };
  return { url: `nats://127.0.0.1:${address.port}`, hangUps, cut, callStale, close };
}

test("a dial that the server hangs up on is tried again at once, not when its time is up, and the return is told once", async () => {
  await using server = await testServer();
  const proxy = await hangingUp(server.url);
  try {
    const credentials = server.keys.mintUser({ tenant: "acme", user: "ann" });
    const link = await server.connect(credentials, { urls: [proxy.url], connectTimeoutMs: 120_000, ...soon });
    const told: boolean[] = [];
    link.onStatus((connected) => told.push(connected));
    const back = returned(link);
    proxy.hangUps.left = 3;
    proxy.cut();
    await back;
    await link.flush();
    expect(proxy.hangUps.done).toBe(3);
    expect(told).toEqual([false, true]);
  } finally {
    proxy.close();
  }
});

test("a connection that the server calls stale is made anew, and is nobody's error", async () => {
  await using server = await testServer();
  const proxy = await hangingUp(server.url);
  const errors: unknown[] = [];
  try {
    const credentials = server.keys.mintUser({ tenant: "acme", user: "ann" });
    const options = { urls: [proxy.url], onError: (error: unknown) => errors.push(error), ...soon };
    const link = await server.connect(credentials, options);
    const back = returned(link);
    proxy.callStale();
    await back;
    await link.flush();
    expect(errors).toEqual([]);
  } finally {
    proxy.close();
  }
});

test("what is asked while the server is away is sent once it is back, and what was under way ends at its deadline", async () => {
  await using server = await testServer();
  const box = await server.sandbox("acme", "sb-1", soon);
  const seen: string[] = [];
  box.subscribe("sbx.v1.acme.sb-1.*", (message) => {
    const text = Buffer.from(message.data).toString();
    seen.push(text);
    if (text !== "silent") message.respond(message.data);
  });
  await box.flush();
  const user = await server.user("acme", "ann", soon);
  const lost = user.request("sb-1", "sbx.v1.acme.sb-1.x", body("silent"), { timeoutMs: 1_500 });
  lost.catch(() => {});
  await until("it arrived", () => seen.includes("silent"));
  const away = new Promise<void>((done) => user.onStatus((connected) => !connected && done()));
  await server.kill();
  await away;
  const held = user.request("sb-1", "sbx.v1.acme.sb-1.x", body("held"), { timeoutMs: 20_000 });
  const answered = held.then(
    (answer) => Buffer.from(answer.data).toString(),
    // The user's link may be back before the sandbox's: then the server says so at once.
    (error: { code: string }) => error.code,
  );
  const flushed = user.flush();
  const back = returned(box);
  await server.restart();
  await back;
  await flushed;
  const outcome = await answered;
  expect(["held", "unreachable"]).toContain(outcome);
  await expect(lost).rejects.toBeInstanceOf(DeadlineError);
  expect(seen.filter((text) => text === "silent").length).toBe(1);
});

test("a server that never comes back: requests end at their deadline, and more than is held is refused", async () => {
  await using server = await testServer();
  const user = await server.user("acme", "ann", soon);
  const away = new Promise<void>((done) => user.onStatus((connected) => !connected && done()));
  await server.kill();
  await away;
  const asked = user.request("sb-1", "sbx.v1.acme.sb-1.x", body("x"), { timeoutMs: 50 });
  await expect(asked).rejects.toBeInstanceOf(DeadlineError);
  const large = new Uint8Array(user.maxPayload);
  const fill = () => {
    for (let i = 0; i < 20; i++) user.publish("sbx.v1.acme.sb-1.x", large);
  };
  expect(fill).toThrow(ConnectionError);
  await user.close();
});

describe("the delay before each return", () => {
  const delays = { firstMs: 200, baseMs: 1_000, maxMs: 5_000 };

  test("is short at first, then grows to its bound, and is spread", () => {
    expect(reconnectDelayMs(0, delays, 0)).toBe(0);
    expect(reconnectDelayMs(0, delays, 1)).toBe(200);
    expect([1, 2, 3, 4, 1000].map((attempt) => reconnectDelayMs(attempt, delays, 0.5))).toEqual([
      1_000, 2_000, 4_000, 5_000, 5_000,
    ]);
    expect(reconnectDelayMs(1, delays, 0)).toBe(500);
    expect(reconnectDelayMs(1, delays, 0.999)).toBeCloseTo(1_499);
  });
});

test("deadlines of any mix of limits expire in order, and those taken back do not", async () => {
  const deadlines = new Deadlines();
  const expired: number[] = [];
  const make = (limitMs: number): Deadline => ({
    dueMs: 0,
    list: undefined,
    before: undefined,
    after: undefined,
    expired: () => expired.push(limitMs),
  });
  const all = [50, 10, 30, 10, 50, 30].map((limitMs) => {
    const deadline = make(limitMs);
    deadlines.set(deadline, limitMs);
    return deadline;
  });
  const [first, second] = all;
  if (first === undefined || second === undefined) throw new Error("unreachable");
  deadlines.clear(first);
  deadlines.clear(first);
  deadlines.set(second, 70);
  await until("all are over", () => expired.length === 5);
  expect(expired).toEqual([10, 30, 30, 50, 10]);
  deadlines.close();
});

test("a message whose end is given in parts arrives as one, in order with others, also where it was held", async () => {
  await using server = await testServer();
  const box = await server.sandbox("acme", "sb-1", soon);
  const user = await server.user("acme", "ann", soon);
  const heard: string[] = [];
  user.subscribe("rep.v1.acme.sb-1.ann.>", ({ data }) =>
    heard.push(new Bun.SHA256().update(data).digest("hex")),
  );
  await user.flush();
  const parts = Array.from({ length: 4 }, (_, i) => new Uint8Array(60_000).fill(i));
  const bodies = [Buffer.from("first"), Buffer.concat([body("head"), ...parts]), body("last")];
  const send = () => {
    const to = "rep.v1.acme.sb-1.ann.x.1";
    box.publish(to, body("first"));
    box.publish(to, body("head"), { tail: parts });
    box.publish(to, body("last"));
  };
  const wanted = bodies.map((data) => new Bun.SHA256().update(data).digest("hex"));
  for (let i = 0; i < 20; i++) send();
  await until("all is there", () => heard.length === 60);
  expect(heard).toEqual(Array.from({ length: 20 }, () => wanted).flat());
  heard.length = 0;
  const away = new Promise<void>((gone) => box.onStatus((connected) => !connected && gone()));
  const back = returned(user);
  await server.kill();
  await away;
  send();
  await server.restart();
  await back;
  // What was held may have come before the reader was back.
  await until("all three are there in order", () => {
    if (heard.join().includes(wanted.join())) return true;
    if (heard.length === 0 || heard.at(-1) === wanted[2]) send();
    return false;
  });
  expect(heard.filter((each) => !wanted.includes(each))).toEqual([]);
});

test("who waits for the server to have it all is told that it counts as gone, also where it does already", async () => {
  await using server = await testServer();
  const user = await server.user("acme", "ann", { ...soon, goneAfterMs: 500 });
  const away = new Promise<void>((lost) => user.onStatus((connected) => !connected && lost()));
  const gone = new Promise<void>((told) => user.onGone(told));
  const ended = () =>
    user.flush().then(
      () => "all of it",
      (error: unknown) => error,
    );
  await server.kill();
  await away;
  const before = ended();
  await gone;
  for (const end of [before, ended()]) expect(await end).toMatchObject({ reason: "server_gone" });
});

test("a server that hangs, and ends no connection, is noticed by who may wait for answers", async () => {
  await using server = await testServer();
  const user = await server.user("acme", "ann", soon);
  let connected = true;
  user.onStatus((now) => {
    connected = now;
  });
  process.kill(server.server.pid, "SIGSTOP");
  try {
    await until("the loss of the connection", () => !connected, 20_000);
  } finally {
    process.kill(server.server.pid, "SIGCONT");
  }
  await until("its return", () => connected);
});
