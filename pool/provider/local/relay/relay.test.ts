// The relay carries every byte in order, pauses who sends too fast, and cannot be crowded out by one sandbox.
import { afterEach, beforeEach, describe, expect, setDefaultTimeout, test } from "bun:test";
import { createHash } from "node:crypto";
import { connect, createServer, type Server, type Socket } from "node:net";
import { join } from "node:path";
import { until } from "../../contract.test-suite.ts";
import { Bench, relayPid, signal } from "../testing.ts";

setDefaultTimeout(60_000);

describe("relay", () => {
  let bench: Bench;
  let server: Server;
  const sockets: Socket[] = [];
  let serve: (socket: Socket) => void = (socket) => socket.pipe(socket);

  beforeEach(async () => {
    serve = (socket) => socket.pipe(socket);
    server = createServer((socket) => {
      socket.on("error", () => undefined);
      sockets.push(socket);
      serve(socket);
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const address = server.address();
    const port = typeof address === "object" && address !== null ? address.port : 0;
    bench = await Bench.make({ natsUrl: `127.0.0.1:${port}` });
    await bench.create("sb-a");
  });
  afterEach(async () => {
    for (const socket of sockets.splice(0)) socket.destroy();
    server.close();
    await bench[Symbol.asyncDispose]();
  });

  const open = (sandbox = "sb-a"): Socket => {
    const socket = connect(join(bench.stateDir, "relay", sandbox, "nats.sock"));
    socket.on("error", () => undefined);
    sockets.push(socket);
    return socket;
  };
  const answerTo = async (text: string, socket = open()): Promise<string> => {
    const answer = new Promise<string>((resolve) => {
      socket.once("data", (data) => resolve(data.toString()));
      socket.once("close", () => resolve("closed"));
    });
    socket.write(text);
    return answer;
  };

  test("64 MiB there and back are the same bytes, with a reader that stops now and then", async () => {
    const size = 64 * 1024 * 1024;
    const block = Buffer.from(Array.from({ length: 65_537 }, (_, i) => i % 251));
    const [sent, received] = [createHash("sha256"), createHash("sha256")];
    const socket = open();
    let [out, back] = [0, 0];
    const feed = () => {
      while (out < size) {
        const part = block.subarray(0, Math.min(block.length, size - out));
        sent.update(part);
        out += part.length;
        if (!socket.write(part)) {
          socket.once("drain", feed);
          return;
        }
      }
    };
    const done = new Promise<void>((resolve, reject) => {
      socket.on("close", () => reject(new Error(`closed after ${back} bytes`)));
      socket.on("data", (data) => {
        received.update(data);
        back += data.length;
        if (back % 7 === 0) {
          socket.pause();
          setTimeout(() => socket.resume(), 1);
        }
        if (back === size) resolve();
      });
    });
    feed();
    await done;
    expect(received.digest("hex")).toBe(sent.digest("hex"));
  });

  test("a receiver that does not read stops the sender, not the relay's memory", async () => {
    serve = (socket) => socket.pause();
    const socket = open();
    let taken = 0;
    const block = Buffer.alloc(1024 * 1024);
    const push = () => {
      while (taken < 512 && socket.write(block)) taken += 1;
    };
    socket.on("drain", push);
    push();
    // What the kernel's buffers hold on the way, and no more.
    let before = -1;
    await until("it stops", async () => {
      const same = before === socket.bytesWritten - socket.writableLength;
      before = socket.bytesWritten - socket.writableLength;
      await Bun.sleep(300);
      return same;
    });
    expect(before).toBeLessThan(64 * 1024 * 1024);
    serve = (socket) => socket.pipe(socket);
    expect(await answerTo("still served")).not.toBe("closed");
  });

  test("one sandbox may have 8 connections; the ninth is closed, and another sandbox is served", async () => {
    await bench.create("sb-b");
    const many = Array.from({ length: 8 }, () => open());
    expect(await Promise.all(many.map((socket) => answerTo("hello", socket)))).toEqual(
      Array(8).fill("hello"),
    );
    expect(await answerTo("hello")).toBe("closed");
    expect(await answerTo("hello", open("sb-b"))).toBe("hello");
    many[0]?.destroy();
    await until("a place is free", async () => (await answerTo("hello")) === "hello");
  });

  test("the end of either side ends the other, after the last byte", async () => {
    serve = (socket) => socket.end("last words");
    const socket = open();
    const parts: string[] = [];
    socket.on("data", (data) => parts.push(data.toString()));
    await new Promise((resolve) => socket.once("close", resolve));
    expect(parts.join("")).toBe("last words");
    serve = (socket2) => socket2.pipe(socket2);
    const second = open();
    expect(await answerTo("x", second)).toBe("x");
    const peer = sockets.findLast((s) => s !== second && s.remotePort !== undefined && !s.destroyed);
    second.destroy();
    await until("the server's side ends", () => peer?.destroyed === true || peer?.readableEnded === true);
  });

  test("a relay that dies is started again, and the sandbox reaches NATS by the same path", async () => {
    expect(await answerTo("before")).toBe("before");
    process.kill(await relayPid(bench.stateDir), "SIGKILL");
    await until("it is back", async () => (await answerTo("after").catch(() => "")) === "after");
    const { pid } = await bench.first("sb-a");
    // By the path inside, for the folder is mounted, not the socket.
    const inside = await Bun.$`nsenter -t ${pid} -m -n python3 -c ${INSIDE_CLIENT}`.quiet().text();
    expect(inside.trim()).toBe("from inside");
    expect(bench.warnings).toHaveLength(1);
  });

  test("a relay that stands still is killed and another serves; it kept creates and removals waiting without end", async () => {
    const pid = await relayPid(bench.stateDir);
    process.kill(pid, "SIGSTOP");
    await Promise.all([bench.create("sb-b"), bench.create("sb-c"), bench.remove("sb-a")]);
    expect(await relayPid(bench.stateDir)).not.toBe(pid);
    expect(await answerTo("x", open("sb-b"))).toBe("x");
    expect(await answerTo("x", open("sb-c"))).toBe("x");
    expect(await answerTo("x")).toBe("closed");
    await until("it is told", () => bench.warnings.length === 2);
    expect(bench.warnings[0]).toContain("does not answer");
  });

  test("a relay that stands still is found so by the next pool, and keeps no mesh from its end", async () => {
    process.kill(await relayPid(bench.stateDir), "SIGSTOP");
    await bench.provider.close();
    await bench.restart();
    await bench.create("sb-b");
    expect(await answerTo("x", open("sb-b"))).toBe("x");
    expect(await answerTo("x")).toBe("x");
    process.kill(await relayPid(bench.stateDir), "SIGSTOP");
    await bench.provider.end(signal());
    expect(await bench.left()).toEqual([]);
    await expect(relayPid(bench.stateDir)).rejects.toThrow("no relay");
  });

  test("a relay that an earlier pool left leads to where NATS is now", async () => {
    const pid = await relayPid(bench.stateDir);
    await bench.provider.close();
    const moved = createServer((socket) => socket.once("data", () => socket.end("the new place")));
    await new Promise<void>((resolve) => moved.listen(0, "127.0.0.1", resolve));
    try {
      const address = moved.address();
      const port = typeof address === "object" && address !== null ? address.port : 0;
      const { stateDir } = bench;
      await using next = new Bench(bench.folder, { stateDir, natsUrl: `127.0.0.1:${port}` });
      await next.create("sb-b");
      expect(await answerTo("x", open("sb-b"))).toBe("the new place");
      expect(await answerTo("x", open("sb-a"))).toBe("the new place");
      expect(await relayPid(stateDir)).toBe(pid);
    } finally {
      moved.close();
      await bench.restart();
    }
  });

  test("only a sandbox's first process is handed a connection: no command, nor the first of its own namespace", async () => {
    const ask = `python3 -c '${HAND_OVER_CLIENT}'`;
    const out = await bench.probe("sb-b", `${ask}; unshare --user --map-root-user --pid --fork ${ask}`);
    expect(out.trim().split("\n")).toEqual(["nothing", "nothing"]);
  });

  test("a sandbox that was removed has no socket any more", async () => {
    await bench.remove("sb-a");
    expect(await answerTo("x")).toBe("closed");
  });
});

const INSIDE_CLIENT = `import socket
s = socket.socket(socket.AF_UNIX); s.connect("/.sandmesh/relay/nats.sock"); s.send(b"from inside"); print(s.recv(100).decode())`;

const HAND_OVER_CLIENT = `import socket
s = socket.socket(socket.AF_UNIX); s.connect("/.sandmesh/relay/dial.sock")
data, fds, _, _ = socket.recv_fds(s, 100, 4)
print("handed over" if data or fds else "nothing")`;
