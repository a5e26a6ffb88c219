import { expect, test } from "bun:test";
import { createServer, type Socket, connect as tcp } from "node:net";
import {
  ExecRequest,
  InvalidRequestError,
  newUuidV7,
  type Outcome,
  type OutputStream,
} from "../../broker/contract/index.ts";
import { check } from "../../broker/contract/validate.ts";
import type { RunningCommand } from "../../broker/endpoint/executor.ts";
import { until } from "../exec/testing.ts";
import { Ports } from "./ports.ts";

interface Run {
  id: string;
  command: RunningCommand;
  text: string;
  bytes: number;
  outcome: Promise<Outcome>;
}

function run(ports: Ports, port: object, more: object = {}): Run {
  const request = check(ExecRequest, { id: newUuidV7(), port, stdin_open: true, ...more });
  const ended = Promise.withResolvers<Outcome>();
  const made = { id: request.id ?? "", text: "", bytes: 0, outcome: ended.promise };
  if (request.port === undefined) throw new Error("no port");
  const command = ports.exec(request.port, request, {
    started() {},
    output(_: OutputStream, data) {
      result.bytes += data.length;
      if (result.bytes < 10_000) result.text += Buffer.from(data).toString();
    },
    ended: ({ outcome }) => ended.resolve(outcome),
    fail: ended.reject,
  });
  const result: Run = Object.assign(made, { command });
  return result;
}

async function server(serve: (socket: Socket) => void): Promise<{ port: number; close(): void }> {
  const made = createServer({ allowHalfOpen: true }, serve);
  await new Promise<void>((resolve) => made.listen(0, "127.0.0.1", resolve));
  const address = made.address();
  return { port: typeof address === "object" ? (address?.port ?? 0) : 0, close: () => made.close() };
}

test("a connection is a command: its stdin's end is the other side's, and both ends are `exited` 0", async () => {
  const ports = new Ports();
  const { port, close } = await server((socket) => void socket.pipe(socket));
  const echo = run(ports, { type: "connect", port }, { stdin: Buffer.from("first ") });
  await echo.command.stdin(Buffer.from("second"));
  echo.command.closeStdin();
  expect(await echo.outcome).toEqual({ type: "exited", code: 0 });
  expect(echo.text).toBe("first second");
  close();
});

test("a port without a server is `connect_failed`, and not a hang", async () => {
  const outcome = await run(new Ports(), { type: "connect", port: 1 }).outcome;
  expect(outcome).toMatchObject({ type: "not_started", reason: "connect_failed" });
});

test("a paused connection holds the sender back, and a resumed one gets all", async () => {
  const ports = new Ports();
  const total = 64 * 1024 * 1024;
  let sent = 0;
  const { port, close } = await server((socket) => {
    const part = Buffer.alloc(1024 * 1024);
    const more = (): void => {
      while (sent < total) {
        sent += part.length;
        if (!socket.write(part)) return void socket.once("drain", more);
      }
      socket.end();
    };
    more();
  });
  const reader = run(ports, { type: "connect", port });
  await until("some came", () => reader.bytes > 0);
  reader.command.pause(true);
  let before = -1;
  await until("the sender stands still", async () => {
    const still = sent === before;
    before = sent;
    await Bun.sleep(50);
    return still;
  });
  expect(sent).toBeLessThan(total);
  reader.command.pause(false);
  await until("all came", () => reader.bytes === total, 20_000);
  reader.command.closeStdin();
  expect((await reader.outcome).type).toBe("exited");
  close();
});

test("canceled and timed-out connections say so, and the other side sees the end", async () => {
  const ports = new Ports();
  let ends = 0;
  const { port, close } = await server((socket) => {
    socket.resume();
    socket.on("close", () => ends++);
    socket.on("error", () => {});
  });
  const late = run(ports, { type: "connect", port }, { timeout_ms: 50 });
  expect(await late.outcome).toMatchObject({ type: "timed_out", after_ms: 50 });
  const canceled = run(ports, { type: "connect", port });
  const long = run(ports, { type: "connect", port }, { timeout_ms: 2_592_000_000 });
  expect(await Promise.race([long.outcome, Bun.sleep(20)])).toBeUndefined();
  expect(() => long.command.signal(15), "no process is there to take it").toThrow(InvalidRequestError);
  ports.close();
  expect(await canceled.outcome).toMatchObject({ type: "canceled" });
  expect(await long.outcome).toMatchObject({ type: "canceled" });
  expect(long.command.signal(15)).toBe(false);
  await until("the first has ended there", () => ends >= 1);
  close();
});

test("a listener tells its port and its connections; each is taken over once; its end closes the others", async () => {
  const ports = new Ports();
  const listener = run(ports, { type: "listen" });
  await until("the port", () => listener.text.includes("\n"));
  const port = Number(listener.text.split("\n")[0]);
  const ends: string[] = [];
  const client = (name: string): Socket => {
    const socket = tcp({ port, host: "127.0.0.1" });
    socket.on("data", (data) => ends.push(`${name} ${data.toString()}`));
    socket.on("error", () => {});
    socket.on("close", () => ends.push(`${name} closed`));
    return socket;
  };
  client("one");
  await until("the first", () => listener.text.split("\n").length > 2);
  const accept = { type: "accept", listener: listener.id, connection: 1 };
  const taken = run(ports, accept);
  await taken.command.stdin(Buffer.from("hello"));
  await until("it hears", () => ends.includes("one hello"));
  expect(await run(ports, accept).outcome).toMatchObject({ reason: "connect_failed" });
  client("two");
  await until("the second", () => listener.text.split("\n").length > 3);
  listener.command.cancel();
  await until("the one that waited is closed", () => ends.includes("two closed"));
  expect(ends).not.toContain("one closed");
  const again = run(ports, { type: "listen", port: 1, host: "203.0.113.1" });
  expect(await again.outcome).toMatchObject({ type: "not_started", reason: "listen_failed" });
  ports.close();
  await until("all is closed", () => ends.includes("one closed"));
});
