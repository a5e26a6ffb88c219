// A user's program whose connection is cut at one message, and what comes behind that arrives: run as child.mjs is, by Bun
// and Node. `WAY` is the way to cut, told by HTTP: it answers `/at/VERB` when the next message of that verb will cut it,
// `/cut` when one has, and lets no connection through between `/block` and `/open`.

import { once } from "node:events";
import { mkdir, writeFile } from "node:fs/promises";
import { createServer, connect as dial } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const { connect } = await import(process.env.SDK);
const way = (order) => fetch(`${process.env.WAY}/${order}`).then((answer) => answer.text());

const PIECE = Buffer.alloc(100_000, "0123456789");
const PIECES = 30;
const ALL = PIECES * PIECE.length;

/** What comes of it first is lost; the rest comes when the connection is back. */
async function* source(box) {
  for (let i = 0; i < 3; i++) yield PIECE;
  await way("cut");
  await box.ping();
  for (let i = 3; i < PIECES; i++) yield PIECE;
}

const FILES = 2_000;

/** So many files that the connection is back before the fourth part is packed. */
async function folder() {
  const path = join(process.env.FOLDER, "tree");
  await mkdir(path);
  for (let i = 0; i < FILES; i++) await writeFile(join(path, `file-${i}`), `${i}`);
  return path;
}

const counted = ({ stdout, outcome }) => ({ outcome, bytes: Number(stdout.text) });
const COUNT = ["wc", "-c"];

/** What each is, the message at which the connection is cut, and what comes of it. */
const scenarios = {
  async write(box) {
    await way("at/write");
    const bytes = await box.files.write("f", source(box));
    return { bytes, size: (await box.files.stat("f")).size };
  },
  async unpack(box) {
    await box.files.write("tree/file", Buffer.alloc(ALL));
    const packed = [];
    for await (const part of box.files.pack("tree")) packed.push(part);
    await way("at/unpack");
    async function* tar() {
      const [first, second, ...rest] = packed;
      yield first;
      yield second;
      await way("cut");
      await box.ping();
      yield* rest;
    }
    await box.files.unpack("copy", tar());
    return { same: (await box.exec("cmp tree/file copy/file")).ok };
  },
  async upload(box) {
    const local = await folder();
    await way("at/unpack");
    await box.files.upload(local, "up");
    return { files: (await box.files.list("up")).length };
  },
  async exec(box) {
    await way("at/exec");
    return counted(await box.exec(COUNT, { stdin: Buffer.alloc(ALL), timeout: "20s" }));
  },
  async source(box) {
    await way("at/exec");
    return counted(await box.exec(COUNT, { stdin: source(box), timeout: "20s" }));
  },
  async session(box) {
    const shell = await box.shell();
    await way("at/exec");
    return counted(await shell.exec("wc -c", { stdin: Buffer.alloc(ALL), timeout: "20s" }));
  },
  async stream(box) {
    await way("at/exec");
    const stream = box.stream(COUNT, { stdin: Buffer.alloc(ALL), timeout: "20s" });
    let text = "";
    for await (const chunk of stream) text += chunk.text;
    return counted({ stdout: { text }, outcome: (await stream.end).outcome });
  },
  /** Each of what is typed is waited for before the next. */
  async typed(box) {
    const heard = [];
    let wake = () => undefined;
    const comes = async (text) => {
      while (!heard.join("").includes(text)) await new Promise((go) => (wake = go));
    };
    async function* typing() {
      yield "first\n";
      await comes("first");
      await way("at/stdin");
      yield "second\n";
      await way("cut");
      await way("block");
      await sleep(50);
      yield "third\n";
      await sleep(50);
      await way("open");
      await comes("third");
    }
    await way("at/exec");
    const stream = box.stream(["cat"], { stdin: typing(), timeout: "20s" });
    for await (const chunk of stream) {
      heard.push(chunk.text);
      wake();
    }
    return { heard: heard.join(""), outcome: (await stream.end).outcome };
  },
  async forward(box) {
    const server = createServer({ allowHalfOpen: true }, (socket) => socket.pipe(socket));
    await once(server.listen(0, "127.0.0.1"), "listening");
    const through = await box.forward(server.address().port);
    await way("at/exec");
    const client = dial({ port: through.port, host: through.host, allowHalfOpen: true });
    client.end("hello");
    let heard = "";
    for await (const part of client) heard += part;
    await through.close();
    server.close();
    return { heard };
  },
};

const mesh = await connect();
const box = await mesh.acquire({ image: "host" });
const result = await scenarios[process.argv[2]](box).catch((error) => ({ error: String(error) }));
process.stdout.write(`${JSON.stringify({ step: "done", ...result })}\n`);
await mesh.close();
