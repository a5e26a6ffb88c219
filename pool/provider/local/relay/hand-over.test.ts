// A socket that is handed into a sandbox leads to NATS and nowhere else, whatever who has it does with it.

import { dlopen, FFIType, ptr } from "bun:ffi";
import { afterEach, expect, test } from "bun:test";
import { closeSync, writeSync } from "node:fs";
import { createServer, type Server, type Socket } from "node:net";
import { until } from "../../contract.test-suite.ts";
import { cut, resolveTarget, socketTo } from "./hand-over.ts";

const { i32, u32, u64, i64_fast, ptr: pointer } = FFIType;
const { symbols: libc } = dlopen("libc.so.6", {
  connect: { args: [i32, pointer, u32], returns: i32 },
  setsockopt: { args: [i32, i32, i32, pointer, u32], returns: i32 },
  recv: { args: [i32, pointer, u64, i32], returns: i64_fast },
  poll: { args: [pointer, u64, i32], returns: i32 },
});

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

/** A server that greets, and remembers who came. */
async function listen(host: string, greeting: string): Promise<{ port: number; came: Socket[] }> {
  const came: Socket[] = [];
  const server = createServer((socket) => {
    socket.on("error", () => undefined);
    came.push(socket);
    socket.write(greeting);
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, host, resolve));
  const address = server.address();
  if (typeof address !== "object" || address === null) throw new Error("no port");
  return { port: address.port, came };
}

/** What arrives; undefined where the connection is refused or nothing has come after `ms`. */
async function heard(fd: number, ms: number): Promise<string | undefined> {
  const bytes = Buffer.alloc(100);
  const deadline = performance.now() + ms;
  for (;;) {
    const n = Number(libc.recv(fd, ptr(bytes), bytes.length, 0x40));
    if (n > 0) return bytes.toString("utf8", 0, n);
    if (performance.now() > deadline) return undefined;
    await Bun.sleep(2);
  }
}

function addressOf(port: number): Buffer {
  const address = Buffer.alloc(16);
  address.writeUInt16LE(2, 0);
  address.writeUInt16BE(port, 2);
  address.set([127, 0, 0, 1], 4);
  return address;
}

test.each(["127.0.0.1", "localhost", "::1"])("it carries bytes both ways to %s", async (host) => {
  const { port, came } = await listen(host === "::1" ? "::1" : "127.0.0.1", "hello");
  const target = await resolveTarget(host === "localhost" ? "127.0.0.1" : host, port);
  const fd = socketTo(target) ?? -1;
  expect(await heard(fd, 5_000)).toBe("hello");
  const echoed = new Promise<string>((resolve) => came[0]?.once("data", (data) => resolve(String(data))));
  writeSync(fd, "from inside");
  expect(await echoed).toBe("from inside");
  const ended = new Promise((resolve) => came[0]?.once("end", resolve));
  cut(fd);
  await ended;
});

test("connected anew to another address it hears nothing, and its filter cannot be taken off", async () => {
  const nats = await listen("127.0.0.1", "hello");
  const other = await listen("127.0.0.1", "a secret");
  const fd = socketTo(await resolveTarget("127.0.0.1", nats.port)) ?? -1;
  expect(await heard(fd, 5_000)).toBe("hello");
  const anew = (): void => {
    const nowhere = Buffer.alloc(16);
    expect(libc.connect(fd, ptr(nowhere), nowhere.length)).toBe(0); // AF_UNSPEC: it is a fresh socket again
  };
  anew();
  libc.connect(fd, ptr(addressOf(other.port)), 16);
  // The other's answer to the first packet is dropped, so that no connection comes to be: 300 ms are an age on loopback.
  expect(await heard(fd, 300)).toBeUndefined();
  expect(other.came).toEqual([]);
  const SO_DETACH_FILTER = 27;
  expect(libc.setsockopt(fd, 1, SO_DETACH_FILTER, ptr(Int32Array.of(0)), 4)).toBe(-1);
  // Not a fault of the socket: back to NATS it goes.
  anew();
  libc.connect(fd, ptr(addressOf(nats.port)), 16);
  expect(await heard(fd, 5_000)).toBe("hello");
  closeSync(fd);
});

test("the end of the sandbox's connection is one also where the sandbox keeps the socket", async () => {
  const { port, came } = await listen("127.0.0.1", "hello");
  const fd = socketTo(await resolveTarget("127.0.0.1", port)) ?? -1;
  expect(await heard(fd, 5_000)).toBe("hello");
  const { fcntl } = dlopen("libc.so.6", { fcntl: { args: [i32, i32, i32], returns: i32 } }).symbols;
  const kept = fcntl(fd, 0, 0);
  let ended = false;
  came[0]?.once("end", () => {
    ended = true;
  });
  came[0]?.resume();
  cut(fd);
  await until("the server sees the end", () => ended);
  expect(() => writeSync(kept, "more")).toThrow();
  closeSync(kept);
});
