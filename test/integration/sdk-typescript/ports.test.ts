// TCP between the trainer and a sandbox, both ways, through the SDK, with real servers and a real daemon.
import { afterEach, expect, test } from "bun:test";
import { once } from "node:events";
import { createServer, type Socket, connect as tcp } from "node:net";
import { type Forward, ProviderError } from "../../../sdk/typescript/mod.ts";
import { liveBox } from "./mesh.ts";

const open: { close(): void }[] = [];
afterEach(() => {
  for (const each of open.splice(0)) each.close();
});

/** A server of this machine, which is also the sandboxes' here. */
async function server(serve: (socket: Socket) => void): Promise<number> {
  const made = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("error", () => socket.destroy());
    serve(socket);
  });
  await new Promise<void>((resolve) => made.listen(0, "127.0.0.1", resolve));
  open.push(made);
  const address = made.address();
  if (typeof address !== "object" || address === null) throw new Error("no address");
  return address.port;
}

/** Sends all, closes that side, and reads to the end. */
function talk(port: number, data: Uint8Array): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = [];
    const socket = tcp({ port, host: "127.0.0.1", allowHalfOpen: true });
    socket.on("data", (part) => parts.push(part));
    socket.on("error", reject);
    socket.on("close", () => resolve(Buffer.concat(parts)));
    socket.on("end", () => socket.end());
    socket.end(data);
  });
}

const echo = (socket: Socket): void => void socket.pipe(socket);

test("forward: a server in the sandbox answers byte for byte, and each side's end reaches the other", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  await using forward = await sandbox.forward(await server(echo));
  const data = Buffer.alloc(3_000_000);
  for (let i = 0; i < data.length; i++) data[i] = (i * 7919) >> 3;
  expect(Buffer.compare(await talk(forward.port, data), data)).toBe(0);
  const all = await Promise.all(
    Array.from({ length: 20 }, (_, i) => talk(forward.port, Buffer.from(`connection ${i}`))),
  );
  expect(all.map(String)).toEqual(Array.from({ length: 20 }, (_, i) => `connection ${i}`));
});

test("forward: a server that a command started in the sandbox is reached", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const command = await sandbox.start(["python3", "-u", "-m", "http.server", "0", "--bind", "127.0.0.1"]);
  let said = "";
  for await (const { data } of command.attach()) {
    said += Buffer.from(data).toString();
    if (/port \d+/.test(said)) break;
  }
  await using forward = await sandbox.forward(Number(/port (\d+)/.exec(said)?.[1]));
  await sandbox.files.write("page", "from the sandbox");
  expect(await (await fetch(`http://127.0.0.1:${forward.port}/page`)).text()).toBe("from the sandbox");
  await command.cancel();
});

test("forward: nobody listens there, and a cut in the middle, are cuts and not silence", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  await using nobody = await sandbox.forward(1);
  expect((await talk(nobody.port, Buffer.from("x")).catch(() => Buffer.alloc(0))).length).toBe(0);
  const cut = await sandbox.forward(
    await server((socket) => void socket.write("half", () => socket.resetAndDestroy())),
  );
  await using __ = cut;
  // A reset may overtake what was written before it (tcp(7)); what must not happen is that nobody is told.
  const told = await talk(cut.port, Buffer.from("x")).catch(() => Buffer.from("half"));
  expect("half".startsWith(told.toString())).toBe(true);
});

test("a forward that is closed leaves no connection and no command", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  let ended = 0;
  const port = await server((socket) => void socket.resume().on("close", () => ended++));
  const forward = await sandbox.forward(port);
  const client = tcp({ port: forward.port, host: "127.0.0.1" });
  client.on("error", () => {});
  client.write("x");
  while (!(await sandbox.commands()).some(({ running }) => running)) await Bun.sleep(5);
  await forward.close();
  while (ended === 0 || (await sandbox.commands()).some(({ running }) => running)) await Bun.sleep(5);
  const refused = await talk(forward.port, Buffer.from("x")).catch((error: Error) => error);
  expect(refused).toBeInstanceOf(Error);
});

type Sandbox = Awaited<ReturnType<typeof liveBox>>;
type Way = "forward" | "expose";
const SIZES = [0, 5, 300_000, 3_000_000];
const AT_ONCE = 8;

/** The way from a client to that server, which leads through the sandbox or into it; both are of this machine here. */
const lead = (sandbox: Sandbox, way: Way, port: number): Promise<Forward> =>
  way === "forward" ? sandbox.forward(port) : sandbox.expose(port);

/** What has come when the other side's end has. */
function toEnd(socket: Socket): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const parts: Buffer[] = [];
    socket.on("data", (part) => parts.push(part));
    socket.on("end", () => resolve(Buffer.concat(parts)));
    socket.on("error", reject);
    socket.on("close", () => reject(new Error("closed without an end")));
  });
}

/** Connections that are open at both ends, until there are none; then only the listening itself may run. */
async function nothingOpen(sandbox: Sandbox, way: Way, sockets: ReadonlySet<Socket>): Promise<void> {
  const listening = way === "forward" ? 0 : 1;
  const running = async () => (await sandbox.commands()).filter((command) => command.running).length;
  while ([...sockets].some((socket) => !socket.destroyed) || (await running()) > listening)
    await Bun.sleep(10);
  expect(await running()).toBe(listening);
}

/** One after the other writes and ends, the second only when it has read the first's end; `full`: the first closes, and
 * does not read on. */
async function inTurn(way: Way, first: "server" | "client", close: "half" | "full"): Promise<void> {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const sockets = new Set<Socket>();
  for (const size of SIZES) {
    const data = Buffer.alloc(size, "0123456789");
    const begin = async (socket: Socket): Promise<Buffer | undefined> => {
      if (close === "full") {
        socket.on("error", () => {});
        socket.write(data, () => socket.destroySoon());
        return undefined;
      }
      socket.end(data);
      return await toEnd(socket);
    };
    const follow = async (socket: Socket): Promise<Buffer> => {
      const heard = await toEnd(socket);
      if (close === "half") socket.end(heard);
      else socket.end();
      return heard;
    };
    const served: Promise<Buffer | undefined>[] = [];
    const port = await server((socket) => {
      sockets.add(socket);
      served.push(first === "server" ? begin(socket) : follow(socket));
    });
    await using through = await lead(sandbox, way, port);
    const dialed = Array.from({ length: AT_ONCE }, () => {
      const socket = tcp({ port: through.port, host: "127.0.0.1", allowHalfOpen: true });
      sockets.add(socket);
      return first === "client" ? begin(socket) : follow(socket);
    });
    // A client that is gone may be before the server has heard of it.
    while (served.length < AT_ONCE) await Bun.sleep(5);
    const heard = await Promise.all([...dialed, ...served]);
    await nothingOpen(sandbox, way, sockets);
    for (const each of heard) if (each !== undefined) expect(each.equals(data)).toBe(true);
  }
}

for (const way of ["forward", "expose"] as const) {
  for (const first of ["server", "client"] as const) {
    for (const close of ["half", "full"] as const) {
      test(`${way}: a ${first} that closes first (${close}) does not leave the other waiting, nor anything open`, async () => {
        await inTurn(way, first, close);
      }, 30_000);
    }
    test(`${way}: a ${first} that is reset ends the other by a reset, and not by an end that looks whole`, async () => {
      const sandbox = await liveBox();
      await using _ = sandbox.live;
      const sockets = new Set<Socket>();
      const accepted = Promise.withResolvers<Socket>();
      const port = await server((socket) => accepted.resolve(socket));
      await using through = await lead(sandbox, way, port);
      const client = tcp({ port: through.port, host: "127.0.0.1", allowHalfOpen: true });
      client.write("x");
      const sides = { client, server: await accepted.promise };
      for (const side of Object.values(sides)) sockets.add(side.on("error", () => {}));
      await once(sides.server, "data");
      const other = sides[first === "server" ? "client" : "server"];
      const told = toEnd(other).catch((error: Error) => error);
      sides[first].resetAndDestroy();
      expect(await told).toMatchObject({ code: "ECONNRESET" });
      await nothingOpen(sandbox, way, sockets);
    });
  }
}

test("expose: a command in the sandbox reaches a server of the trainer's, many at once", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  await using exposed = await sandbox.expose(await server(echo));
  const line = (i: number) =>
    `exec 3<>/dev/tcp/127.0.0.1/${exposed.port}; echo 'hello ${i}' >&3; read -r answer <&3; echo "$answer"`;
  const results = await Promise.all(
    Array.from({ length: 10 }, (_, i) => sandbox.exec(["bash", "-c", line(i)], { timeout: "20s" })),
  );
  expect(results.map(({ stdout }) => stdout.text)).toEqual(
    Array.from({ length: 10 }, (_, i) => `hello ${i}\n`),
  );
});

test("expose: a port that is taken in the sandbox is an error, not a silence", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const taken = await server(echo);
  const error = await sandbox.expose(1, { port: taken }).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(ProviderError);
});
