// TCP between the trainer and a sandbox, both ways, through the SDK, with real servers and a real daemon.
import { afterEach, expect, test } from "bun:test";
import { createServer, type Socket, connect as tcp } from "node:net";
import { ProviderError } from "../../../sdk/typescript/mod.ts";
import { liveMesh } from "./mesh.ts";

const open: { close(): void }[] = [];
afterEach(() => {
  for (const each of open.splice(0)) each.close();
});

async function box() {
  const live = await liveMesh();
  const mesh = await live.connect();
  return Object.assign(await mesh.acquire({ image: "host" }), { live });
}

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
  const sandbox = await box();
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
  const sandbox = await box();
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
  const sandbox = await box();
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
  const sandbox = await box();
  await using _ = sandbox.live;
  let ended = 0;
  const port = await server((socket) => {
    socket.resume();
    socket.on("end", () => {
      ended++;
      socket.end();
    });
  });
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

test("expose: a command in the sandbox reaches a server of the trainer's, many at once", async () => {
  const sandbox = await box();
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
  const sandbox = await box();
  await using _ = sandbox.live;
  const taken = await server(echo);
  const error = await sandbox.expose(1, { port: taken }).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(ProviderError);
});
