// What callers see where the server is gone for good: each kind of request and stream ends with the same typed error.
import { expect, test } from "bun:test";
import { once } from "node:events";
import { createServer, connect as dial, type Socket } from "node:net";
import { type TestServer, until } from "../../../broker/server/testing.ts";
import type { Mesh, Sandbox } from "../../../sdk/typescript/mod.ts";
import { connectTo } from "../../../sdk/typescript/testing/harness.ts";
import { liveMesh } from "./mesh.ts";

const SPEC = { image: "host" } as const;
const LONG = 60_000;
const SOON = { goneAfterMs: 2_000 };

async function read(parts: AsyncIterable<unknown>): Promise<void> {
  for await (const _ of parts);
}

/** A source of parts that never ends, a little at a time. */
async function* endless(): AsyncGenerator<Uint8Array> {
  for (;;) {
    yield new Uint8Array(64 * 1024);
    await Bun.sleep(5);
  }
}

/** Everything that can be under way, by its name; all of it longer than the test. */
async function underWay(mesh: Mesh, box: Sandbox): Promise<Record<string, Promise<unknown>>> {
  const session = await box.shell();
  const typed = await box.start("sleep 600", { stdinOpen: true });
  await box.exec("mkfifo pipe; sh -c 'exec 3<>pipe; sleep 600' >/dev/null 2>&1 &");
  return {
    exec: box.exec("sleep 600"),
    stream: read(box.stream("sleep 600")),
    session: session.exec("sleep 600"),
    attach: read(typed.attach()),
    wait: typed.wait(),
    stdin: (async () => {
      for (;;) await typed.stdin.write(new Uint8Array(64 * 1024));
    })(),
    upload: box.files.write("big", endless()),
    watch: read(box.files.watch(".")),
    events: read(mesh.events()),
  };
}

/** By an end or a reset; `once` would throw the reset. */
const closing = (socket: Socket) => new Promise<unknown>((resolve) => socket.on("close", resolve));

const asked: Record<string, (mesh: Mesh, box: Sandbox) => Promise<unknown>> = {
  exec: (_, box) => box.exec("true"),
  start: (_, box) => box.start("true"),
  shell: (_, box) => box.shell(),
  terminal: (_, box) => box.terminal(),
  ping: (_, box) => box.ping(),
  stat: (_, box) => box.files.stat("."),
  read: (_, box) => box.files.read("x"),
  pack: (_, box) => read(box.files.pack(".")),
  write: (_, box) => box.files.write("x", "y"),
  append: (_, box) => box.files.write("x", "y", { append: true }),
  upload: (_, box) => box.files.write("x", endless()),
  download: (_, box) => box.files.download("x", "/tmp/sandmesh-never"),
  sha256: (_, box) => box.files.sha256("x"),
  search: (_, box) => box.files.search("x"),
  glob: (_, box) => box.files.glob("*"),
  expose: (_, box) => box.expose(1),
  acquire: (mesh) => mesh.acquire(SPEC),
  list: (mesh) => mesh.list(),
  events: (mesh) => read(mesh.events()),
};

const GONE = { code: "connection_failed", reason: "server_gone" };
const failure = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    (value) => ({ value }),
    (error: unknown) => error,
  );

async function comeBack(live: { server: TestServer }, mesh: Mesh): Promise<void> {
  await live.server.restart();
  await until("it is back", async () => !("code" in Object(await failure(mesh.status()))));
}

test(
  "with the server gone all that is under way and all that is asked ends as connection_failed, and works when it is back",
  async () => {
    await using live = await liveMesh();
    await using mesh = await connectTo(live.server, {}, "ann", SOON);
    const box = await mesh.acquire(SPEC);
    await using forward = await box.forward(1);
    const waiting = await underWay(mesh, box);
    for (const each of Object.values(waiting)) each.catch(() => undefined);
    await until("they run", async () => (await box.commands()).filter(({ running }) => running).length >= 4);
    await live.server.kill();
    for (const [name, work] of Object.entries(waiting))
      expect([name, await failure(work)]).toMatchObject([name, GONE]);
    expect(await failure(waiting.exec ?? Promise.resolve())).toMatchObject({
      sandbox: box.id,
      started: "unknown",
    });
    for (const [name, ask] of Object.entries(asked))
      expect([name, await failure(ask(mesh, box))]).toMatchObject([name, GONE]);
    expect(await failure(box.exec("true"))).toMatchObject({ sandbox: box.id, started: "no" });
    // A connection to a forwarded port is cut, and ends no process.
    const socket = dial(forward.port, forward.host).on("error", () => undefined);
    await closing(socket);
    await comeBack(live, mesh);
    expect((await box.exec("echo back")).stdout.text).toBe("back\n");
  },
  LONG,
);

test(
  "a connection over a forwarded or exposed port is cut where the server is gone",
  async () => {
    await using live = await liveMesh();
    await using mesh = await connectTo(live.server, {}, "ann", SOON);
    const box = await mesh.acquire(SPEC);
    const echo = createServer((socket) => void socket.on("error", () => undefined).pipe(socket));
    echo.listen(0, "127.0.0.1");
    await once(echo, "listening");
    const address = echo.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    await using forward = await box.forward(port);
    const socket = dial(forward.port, forward.host).on("error", () => undefined);
    socket.write("ping");
    await once(socket, "data");
    const closed = closing(socket);
    await live.server.kill();
    await closed;
    echo.close();
    await comeBack(live, mesh);
  },
  LONG,
);
