// A user's program, for tests of what happens around a process: run by Bun against the sources and by Node against
// the built package. `SDK=<module> <bun|node> child.mjs <scenario>`; it prints one line of JSON for each step.
import { once } from "node:events";
import { existsSync } from "node:fs";
import { createServer, connect as dial } from "node:net";
import { isMainThread, parentPort, Worker } from "node:worker_threads";

const { connect } = await import(process.env.SDK);

/** A worker's stdout is its parent's to write, as messages are, but is not waited for. */
const say = (step, more = {}) =>
  isMainThread
    ? process.stdout.write(`${JSON.stringify({ step, ...more })}\n`)
    : parentPort.postMessage({ step, more });
const block = (ms) => {
  const until = Date.now() + ms;
  while (Date.now() < until);
};

/** What a server says to who connects, and what must come of them before it says no more. */
const silences = {
  "before INFO": { says: "" },
  "before TLS": { says: 'INFO {"tls_required":true}\r\n', hears: "\x16" },
  "before the answer to CONNECT": {
    says: 'INFO {"version":"2.15.1","max_payload":1048576,"nonce":"n"}\r\n',
    hears: "CONNECT",
  },
};

async function aborted(url, reached) {
  const control = new AbortController();
  const connecting = connect({ url, signal: control.signal }).catch((error) => error);
  if (reached !== undefined) await Promise.race([reached, connecting]);
  await reached;
  control.abort("enough");
  const { code, cause } = await connecting;
  return { code, cause };
}

/** How a program ends of its own, in an orderly way. */
const ways = {
  exit: () => process.exit(3),
  exception: () => {
    throw new Error("the program's own");
  },
  rejection: () => Promise.reject(new Error("the program's own")),
};

const scenarios = {
  /** Each sandbox of a run has a callback that throws; one is released, then the run, then the connection. */
  async onLost() {
    const uncaught = [];
    process.on("uncaughtException", ({ message }) => uncaught.push(message));
    const mesh = await connect();
    const run = mesh.run();
    const boxes = await run.acquireMany(3, { image: "host" });
    const told = [];
    for (const [i, box] of boxes.entries()) {
      box.onLost(() => {
        throw new Error(`of ${i}`);
      });
      box.onLost(({ code }) => told.push(code));
    }
    const waiting = boxes.map((box) => box.exec("sleep 600").catch(({ code }) => code));
    await boxes[0].release();
    await run.close();
    say("released", { told, waiting: await Promise.all(waiting), uncaught });
    await mesh.close();
    say("closed");
  },
  /** Connecting is aborted at each of its stages. */
  async abortConnect() {
    say("dialling", await aborted(process.env.FULL, new Promise((go) => setTimeout(go, 50))));
    for (const [stage, { says, hears = "" }] of Object.entries(silences)) {
      const server = createServer();
      await once(server.listen(0, "127.0.0.1"), "listening");
      const url = `nats://127.0.0.1:${server.address().port}`;
      say(`at once ${stage}`, await aborted(url, undefined));
      const left = [];
      const reached = new Promise((go) => {
        server.on("connection", (socket) => {
          left.push(once(socket, "close"));
          socket.on("error", () => undefined);
          let heard = "";
          socket.on("data", (data) => {
            heard += data.toString("latin1");
            if (heard.startsWith(hears)) go();
          });
          socket.write(says);
          if (hears === "") go();
        });
      });
      say(stage, await aborted(url, reached));
      // Hung up, each of them.
      await Promise.all(left);
      server.close();
    }
    // A timer would keep the program for the ten seconds that connecting may take.
    say("left", { timers: process.getActiveResourcesInfo().filter((each) => each === "Timeout").length });
  },
  /** Connections whose server or client ends first, by half or whole, and those that are reset. */
  async ports() {
    const mesh = await connect();
    const box = await mesh.acquire({ image: "host" });
    const data = Buffer.alloc(300_000, "0123456789");
    const toEnd = async (socket) => {
      const parts = [];
      socket.on("data", (part) => parts.push(part));
      await once(socket, "end");
      return Buffer.concat(parts).equals(data);
    };
    const firsts = {
      half: (socket) => toEnd(socket.end(data)),
      full: (socket) => void socket.write(data, () => socket.destroySoon()),
      reset: (socket) =>
        void socket.write("x", () => socket.once("data", () => socket.resetAndDestroy().destroy())),
    };
    const seconds = {
      half: (socket) => toEnd(socket).finally(() => socket.end(data)),
      full: (socket) => toEnd(socket).finally(() => socket.end()),
      reset: (socket) => {
        socket.write("x");
        return once(socket.resume(), "end")
          .catch(({ code }) => code)
          .finally(() => socket.destroy());
      },
    };
    for (const [way, listening] of Object.entries({ forward: 0, expose: 1 })) {
      for (const how of Object.keys(firsts)) {
        for (const first of ["server", "client"]) {
          const talk = async (who, socket) => {
            const closed = new Promise((go) => socket.on("error", () => undefined).on("close", go));
            const heard = await (who === first ? firsts : seconds)[how](socket);
            await closed;
            return heard;
          };
          const server = createServer({ allowHalfOpen: true });
          const served = once(server, "connection").then(([socket]) => talk("server", socket));
          await once(server.listen(0, "127.0.0.1"), "listening");
          const through = await box[way](server.address().port);
          const client = dial({ port: through.port, host: through.host, allowHalfOpen: true });
          const heard = { client: await talk("client", client), server: await served };
          const running = async () => (await box.commands()).filter((command) => command.running).length;
          while ((await running()) > listening) await new Promise((go) => setTimeout(go, 10));
          await through.close();
          server.close();
          say(`${way} ${how} ${first}`, heard);
        }
      }
    }
    await mesh.close();
  },
  /** A server ends a connection and resets it, both of which this program hears at once, since it was busy. */
  async endAndReset() {
    const mesh = await connect();
    const box = await mesh.acquire({ image: "host" });
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      // The first part has been told by then, so that the end is told apart from the reset.
      const endAndReset = () =>
        socket.end(() => {
          socket.resetAndDestroy();
          block(200);
        });
      socket
        .on("error", () => undefined)
        .once("data", () => {
          socket.write("x", () => setTimeout(endAndReset, 100));
        });
    });
    await once(server.listen(0, "127.0.0.1"), "listening");
    const through = await box.forward(server.address().port);
    for (let i = 0; i < 5; i++) {
      const client = dial({ port: through.port, host: through.host, allowHalfOpen: true });
      client.on("error", () => undefined).write("x");
      await new Promise((go) => client.resume().on("end", go).on("close", go));
      client.destroy();
    }
    await through.close();
    server.close();
    await mesh.close();
    say("closed");
  },
  /** Connected, and nothing else, until SIGUSR2 or a signal that ends it. */
  async idle() {
    const mesh = await connect();
    process.on("SIGUSR2", () => mesh.close());
    say("connected");
  },
  /** What we have warned of some time after connecting, and after an acquire. */
  async warned() {
    const warnings = [];
    process.on("warning", ({ name, message }) => name === "SandmeshWarning" && warnings.push(message));
    const mesh = await connect();
    await new Promise((go) => setTimeout(go, 1_000));
    say("connected", { warnings });
    await mesh.acquire({ image: "host" });
    say("acquired", { warnings });
    await mesh.close();
  },
  /** All is closed in the orderly way. */
  async close() {
    const mesh = await connect();
    await mesh.acquireMany(3, { image: "host" });
    say("acquired");
    await mesh.close();
    say("closed");
  },
  /** The program forgets to release, and ends. */
  async exit() {
    const mesh = await connect();
    await mesh.acquireMany(3, { image: "host" });
    say("acquired");
    process.exit(3);
  },
  async exception() {
    const mesh = await connect();
    await mesh.acquireMany(3, { image: "host" });
    say("acquired");
    throw new Error("the program's own");
  },
  /** Acquires of every kind are under way. It ends as WAY says at SIGUSR2, else by a signal. */
  async acquiring() {
    const mesh = await connect({ lease: process.env.LEASE ?? "60s" });
    const control = new AbortController();
    const aborted = mesh.acquire({ image: "host", run: "aborted", signal: control.signal });
    aborted.catch(() => undefined);
    const others = [
      mesh.acquire({ image: "host" }),
      mesh.acquire({ image: "host", run: "named" }),
      mesh.run("whole").acquireMany(2, { image: "host" }),
    ];
    process.on("SIGUSR2", async () => {
      control.abort();
      await aborted.catch(() => undefined);
      ways[process.env.WAY]();
    });
    say("acquiring");
    await Promise.all(others);
  },
  /** The grants have come, and no turn of the event loop has seen them. */
  async granted() {
    const mesh = await connect();
    const acquiring = [mesh.acquire({ image: "host" }), mesh.acquire({ image: "host", run: "named" })];
    say("acquiring");
    // What was asked must have left this process.
    await mesh.status();
    while (!existsSync(process.env.GO)) block(1);
    process.exit(3);
    await Promise.all(acquiring);
  },
  /** The program waits for none of its releases. */
  async releasing() {
    const mesh = await connect();
    const boxes = await mesh.run("one").acquireMany(2, { image: "host" });
    const box = await mesh.acquire({ image: "host" });
    void box.release();
    void boxes[0].release();
    void mesh.run("one").release();
    process.exit(3);
  },
  /** Until a signal comes. */
  async wait() {
    const mesh = await connect({ lease: process.env.LEASE ?? "60s" });
    await mesh.run("one").acquireMany(2, { image: "host" });
    await mesh.acquire({ image: "host" });
    say("acquired");
    await new Promise(() => undefined);
  },
  /** A handler of the program's own decides. */
  async handler() {
    const mesh = await connect();
    const box = await mesh.acquire({ image: "host" });
    process.on("SIGTERM", async () => {
      say("handled", { lost: box.lost !== undefined });
      await mesh.close();
      process.exit(5);
    });
    say("acquired");
    await new Promise(() => undefined);
  },
  /** The event loop stands still for longer than the lease. */
  async blocked() {
    const mesh = await connect({ lease: process.env.LEASE });
    const box = await mesh.acquire({ image: "host" });
    say("acquired", { sandbox: box.id });
    block(Number(process.env.BLOCK_MS));
    const views = await mesh.list();
    say("blocked", { states: views.map((view) => view.state), lost: box.lost?.message });
    await mesh.close();
    say("closed");
  },
  /** Much of all kinds waits with one signal, until it aborts; nobody answers but the pool. */
  async oneSignal() {
    const mesh = await connect();
    const control = new AbortController();
    const { signal } = control;
    const boxes = await mesh.run().acquireMany(16, { image: "host", signal });
    await Promise.all(boxes.map(() => mesh.status({ signal })));
    const read = async (all) => {
      for await (const _ of all);
    };
    const waiting = boxes.flatMap((box) => [
      box.exec("true", { signal }),
      box.stream("true", { signal }).drain({ signal }),
      box.start("true", { signal }),
      box.terminal({ signal }),
      box.shell({ signal }),
      box.files.read("x", { signal }),
      box.files.write("x", "y", { signal }),
      box.files.upload(".", "x", { signal }),
      read(mesh.events({ signal })),
      mesh.acquire({ image: "no such image", signal }),
    ]);
    const ended = Promise.allSettled(waiting);
    await mesh.status();
    control.abort();
    const failed = (await ended).map(({ reason }) => reason?.code ?? "none");
    say("aborted", { all: failed.length, codes: [...new Set(failed)] });
    await mesh.close();
    say("closed");
  },
  /** One of each of the main things. */
  async core() {
    const mesh = await connect();
    const box = await mesh.acquire({ image: "host" });
    const hello = await box.exec("echo hello; echo oops >&2; exit 3");
    say("exec", { code: hello.exitCode, stdout: hello.stdout.text, stderr: hello.stderr.text });
    let streamed = "";
    for await (const chunk of box.stream(["echo", "streamed"])) streamed += chunk.text;
    say("stream", { streamed });
    await box.files.write("child.bin", new Uint8Array([0xff, 0, 0x0d, 0x0a]));
    say("files", { bytes: [...(await box.files.read("child.bin"))] });
    const failure = await box.files.read("/tmp/sandmesh-nothing").catch((error) => error);
    say("error", { code: failure.code, reason: failure.reason });
    await mesh.close();
    say("closed");
  },
};

/** What the main thread does once its worker has acquired; else it outlives the worker. */
const ends = {
  terminate: (worker) => worker.terminate(),
  exit: ways.exit,
  exception: ways.exception,
};

/** The scenario in a worker thread. */
function inWorker() {
  const worker = new Worker(new URL(import.meta.url), { argv: process.argv.slice(2) });
  worker.on("message", ({ step, more }) => {
    say(step, more);
    if (step === "acquired") ends[process.env.END]?.(worker);
  });
  worker.on("error", (error) => say("error", { message: error.message }));
  worker.on("exit", (code) => say("worker ended", { code }));
  setInterval(() => undefined, 60_000);
}

// Not awaited: while the main module is still under way, Bun does not end at an uncaught exception.
if (isMainThread && process.env.END !== undefined) inWorker();
else scenarios[process.argv[2]]();
