// Several who write to one command's stdin, from one client and from others: all of each is read, once and in its order.
import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { SandmeshError, SessionClosedError } from "../../../sdk/typescript/mod.ts";
import { cuttable } from "../../cuttable.ts";
import { liveMesh } from "./mesh.ts";

const KiB = 1024;
// Hundreds of questions one after another, on a machine that others use.
setDefaultTimeout(60_000);

/** A sandbox as two clients have it; the second one's way can be cut. */
async function twoClients() {
  const live = await liveMesh();
  const way = await cuttable(live.server.port);
  const own = await (await live.connect()).acquire({ image: "host" });
  const mesh = await live.connect({ url: way.url });
  const other = mesh.sandbox(own.id);
  return {
    own,
    other,
    way,
    async [Symbol.asyncDispose]() {
      await mesh.close();
      await way[Symbol.asyncDispose]();
      await live[Symbol.asyncDispose]();
    },
  };
}

const CAT = { stdinOpen: true, timeout: "40s" } as const;
const failure = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => "taken",
    (error) => error,
  );

describe("two clients that write to one command", () => {
  test("by turns: it reads all that each was told was taken, in the order of the answers", async () => {
    await using clients = await twoClients();
    const { own, other } = clients;
    const command = await own.start(["cat"], CAT);
    const theirs = other.command(command.id).stdin;
    const mine = own.command(command.id).stdin;
    for (const stdin of [command.stdin, theirs, command.stdin, mine, theirs, command.stdin, mine])
      await stdin.write(stdin === theirs ? "theirs\n" : stdin === mine ? "mine\n" : "first\n");
    await command.stdin.close();
    expect((await command.wait()).stdout.text).toBe("first\ntheirs\nfirst\nmine\ntheirs\nfirst\nmine\n");
  });

  test("before the one that has started it: nothing of either is left out", async () => {
    await using clients = await twoClients();
    const command = await clients.own.start(["cat"], { ...CAT, stdin: "with it\n" });
    await clients.other.command(command.id).stdin.write("theirs\n");
    await command.stdin.write("mine\n");
    await command.stdin.close();
    expect((await command.wait()).stdout.text).toBe("with it\ntheirs\nmine\n");
  });

  test("at once: each one's lines come whole and in its order, none twice", async () => {
    await using clients = await twoClients();
    const { own, other } = clients;
    const command = await own.start(["cat"], CAT);
    const writers = [command.stdin, other.command(command.id).stdin, other.command(command.id).stdin];
    await Promise.all(
      writers.map(async (stdin, who) => {
        for (let i = 0; i < 100; i++) await stdin.write(`${who} ${i}\n`);
        await Promise.all(Array.from({ length: 100 }, (_, i) => stdin.write(`${who} ${100 + i}\n`)));
      }),
    );
    await command.stdin.close();
    const lines = (await command.wait()).stdout.text.trimEnd().split("\n");
    for (const who of writers.keys())
      expect(lines.filter((line) => line.startsWith(`${who} `))).toEqual(
        Array.from({ length: 200 }, (_, i) => `${who} ${i}`),
      );
    expect(lines).toHaveLength(600);
  });

  test("long ones at once: parts of 256 KiB stay in one piece, and none is lost", async () => {
    await using clients = await twoClients();
    const command = await clients.own.start(["cat"], CAT);
    const theirs = clients.other.command(command.id).stdin;
    await Promise.all([
      command.stdin.write(Buffer.alloc(1024 * KiB, "a")),
      theirs.write(Buffer.alloc(1024 * KiB, "b")),
    ]);
    await theirs.close();
    const { text } = (await command.wait()).stdout;
    const runs = text.match(/a+|b+/g) ?? [];
    expect(runs.every((run) => run.length % (256 * KiB) === 0)).toBe(true);
    expect([text.length, text.replaceAll("b", "").length]).toEqual([2048 * KiB, 1024 * KiB]);
  });

  test("while a source feeds it: the source's and theirs come whole", async () => {
    await using clients = await twoClients();
    const { own, other } = clients;
    const started = Promise.withResolvers<string>();
    async function* source() {
      const theirs = other.command(await started.promise).stdin;
      for (let i = 0; i < 20; i++) {
        yield `source ${i}\n`;
        await theirs.write(`theirs ${i}\n`);
      }
    }
    const stream = own.stream("echo go; cat", { stdin: source(), timeout: "40s" });
    let text = "";
    for await (const chunk of stream) {
      text += chunk.text;
      started.resolve(stream.id);
    }
    const lines = text.trimEnd().split("\n");
    const of = (who: string) => lines.filter((line) => line.startsWith(who));
    expect(of("source")).toEqual(Array.from({ length: 20 }, (_, i) => `source ${i}`));
    expect(of("theirs")).toEqual(Array.from({ length: 20 }, (_, i) => `theirs ${i}`));
  });

  test("on a terminal: what each types is read", async () => {
    await using clients = await twoClients();
    const line = 'stty -echo; echo go; while read line; do echo "<$line>"; done';
    await using terminal = await clients.own.terminal({ command: line });
    const theirs = clients.other.command(terminal.command.id).stdin;
    let seen = "";
    const shows = async (text: string) => {
      for await (const chunk of clients.own.command(terminal.command.id).attach()) {
        seen += chunk.text;
        if (seen.includes(text)) return;
      }
    };
    await shows("go");
    await terminal.write("one\n");
    await theirs.write("two\n");
    await terminal.write("three\n");
    await theirs.write("four\n");
    await terminal.write("five\n");
    seen = "";
    await shows("<five>");
    expect(seen.match(/<\w+>/g)?.join("")).toBe("<one><two><three><four><five>");
  });

  test("while the way of one is cut: what it sends again is taken once, and no other's bytes for it", async () => {
    await using clients = await twoClients();
    const { own, other, way } = clients;
    const command = await own.start("until [ -e go ]; do sleep 0.02; done; rm go; cat", CAT);
    const theirs = other.command(command.id).stdin;
    await theirs.write("begin\n");
    // More than a pipe holds: it is there, and not answered yet.
    const big = `${"x".repeat(200_000)}\n`;
    const waits = theirs.write(big);
    await other.ping();
    const mine = command.stdin.write("mine\n");
    await own.ping();
    const closed = way.block();
    await own.files.write("go", "");
    await mine;
    // By now its answer went nowhere.
    closed.open();
    await waits;
    await theirs.write("theirs\n");
    await command.stdin.write("mine again\n");
    for (let i = 0; i < 30; i++) {
      const writing = theirs.write(`theirs ${i}\n`);
      if (i % 5 === 0) way.cut();
      await command.stdin.write(`mine ${i}\n`);
      await writing;
    }
    await theirs.close();
    const lines = (await command.wait()).stdout.text.trimEnd().split("\n");
    const numbered = (who: string) => Array.from({ length: 30 }, (_, i) => `${who} ${i}`);
    expect(lines.filter((text) => text.startsWith("mine"))).toEqual([
      "mine",
      "mine again",
      ...numbered("mine"),
    ]);
    expect(lines.filter((text) => text.startsWith("theirs"))).toEqual(["theirs", ...numbered("theirs")]);
    expect(lines.filter((text) => `${text}\n` === big)).toHaveLength(1);
    expect(lines).toHaveLength(65);
  });

  test("after one has closed it the other's write is a SessionClosedError, closing again is none", async () => {
    await using clients = await twoClients();
    const command = await clients.own.start("cat; read x < fifo", CAT);
    const theirs = clients.other.command(command.id).stdin;
    await clients.own.exec("mkfifo fifo");
    await theirs.write("theirs\n");
    await command.stdin.write("mine\n");
    await theirs.close();
    for (const writing of [
      command.stdin.write("lost"),
      clients.own.command(command.id).stdin.write("lost"),
    ]) {
      const error = await failure(writing);
      expect(error).toBeInstanceOf(SessionClosedError);
      expect(error).toMatchObject({ reason: "closed" });
    }
    expect(await failure(command.stdin.close())).toBe("taken");
    // What it has not read yet ends with it.
    let read = "";
    for await (const chunk of command.attach()) {
      read += chunk.text;
      if (read.endsWith("mine\n")) break;
    }
    await command.cancel();
    // Also when it has ended.
    expect(await failure(clients.own.command(command.id).stdin.write("lost"))).toBeInstanceOf(
      SessionClosedError,
    );
    expect((await command.wait()).stdout.text).toBe("theirs\nmine\n");
  });

  test("a command whose stdin another has closed before its source was through says so", async () => {
    await using clients = await twoClients();
    const { own, other } = clients;
    const started = Promise.withResolvers<string>();
    async function* source() {
      yield "a part\n";
      await other.command(await started.promise).stdin.close();
      yield "lost\n";
    }
    const stream = own.stream("cat; sleep 30", { stdin: source(), timeout: "40s" });
    const reading = (async () => {
      for await (const _ of stream) started.resolve(stream.id);
    })();
    const error = await failure(reading);
    expect(error).toBeInstanceOf(SandmeshError);
    expect(error).toMatchObject({ code: "session_closed", reason: "closed" });
  });

  test("more than a daemon counts, and the first one after them all: nothing is lost", async () => {
    await using clients = await twoClients();
    const { own, other } = clients;
    const command = await own.start(["cat"], CAT);
    await command.stdin.write("first\n");
    for (let i = 0; i < 300; i++) await other.command(command.id).stdin.write(".");
    await command.stdin.write("\nlast\n");
    await command.stdin.close();
    expect((await command.wait()).stdout.text).toBe(`first\n${".".repeat(300)}\nlast\n`);
  });
});
