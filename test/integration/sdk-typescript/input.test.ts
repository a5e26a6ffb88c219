// What a caller gives to be read: much of it, and sources that wait or fail. Through the SDK, against real processes.
import { expect, test } from "bun:test";
import { until } from "../../../broker/server/testing.ts";
import { SandboxLostError } from "../../../sdk/typescript/mod.ts";
import { liveBox } from "./mesh.ts";

test("much stdin, and stdin that comes in parts, arrives whole and is closed", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const big = Buffer.alloc(3_000_000, "0123456789abcdef");
  const hash = new Bun.CryptoHasher("sha256").update(big).digest("hex");
  const one = await sandbox.exec(["sha256sum"], { stdin: big });
  expect(one.stdout.text.slice(0, 64)).toBe(hash);
  const parts = (async function* () {
    yield "a";
    await new Promise((go) => setTimeout(go, 10));
    yield new Uint8Array([0xff]);
  })();
  expect((await sandbox.exec("od -An -tx1", { stdin: parts })).stdout.text).toBe(" 61 ff\n");
  // A command that does not read its input is not held up by it.
  expect((await sandbox.exec("exec true", { stdin: big })).ok).toBe(true);
});

test("stdin that stays open is open behind much of it, or a source of it, too, and what is written comes behind that", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const big = Buffer.alloc(3_000_000, "0123456789abcde\n");
  const gate = Promise.withResolvers<void>();
  async function* source() {
    yield "the source\n";
    await gate.promise;
    yield big;
  }
  for (const stdin of [big, source()]) {
    const command = await sandbox.start("head -c 3000000 | wc -c; cat | tail -n 1", {
      stdin,
      stdinOpen: true,
      timeout: "40s",
    });
    const written = command.stdin.write("written\n");
    gate.resolve();
    await written;
    await command.stdin.close();
    expect((await command.wait()).stdout.text).toBe("3000000\nwritten\n");
  }
});

test("who closes stdin at once cuts off nothing of what it was started with", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const big = Buffer.alloc(3_000_000, "0123456789abcde\n");
  async function* source() {
    yield big;
    await new Promise((go) => setTimeout(go, 10));
    yield big;
  }
  for (const [stdin, bytes] of [
    [big, 3_000_000],
    [source(), 6_000_000],
  ] as const) {
    const command = await sandbox.start(["wc", "-c"], { stdin, stdinOpen: true, timeout: "40s" });
    await command.stdin.close();
    expect((await command.wait()).stdout.text).toBe(`${bytes}\n`);
  }
});

test("what a source of stdin has given reaches the command while the source waits for its answer", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const answers = [0, 1, 2].map(() => Promise.withResolvers<string>());
  async function* talk(): AsyncGenerator<string, void, void> {
    for (const [i, word] of ["a", "b", "c"].entries()) {
      yield `${word}\n`;
      await answers[i]?.promise;
    }
  }
  let heard = 0;
  await using stream = sandbox.stream("cat", { stdin: talk(), timeout: "20s" });
  for await (const { data } of stream)
    for (const line of Buffer.from(data).toString().split("\n").filter(Boolean))
      answers[heard++]?.resolve(line);
  expect(await Promise.all(answers.map(({ promise }) => promise))).toEqual(["a", "b", "c"]);
});

test("a source of stdin that fails ends the command", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const source = (async function* () {
    yield "x";
    throw new Error("the source broke");
  })();
  const failure = await sandbox.exec("cat; sleep 600", { stdin: source }).catch((error: unknown) => error);
  expect(failure).toMatchObject({ code: "canceled" });
  expect(String(failure)).toContain("the source broke");
  await until("nothing runs", async () => (await sandbox.commands()).every((each) => !each.running));
});

test("a source of stdin that gives no bytes, or throws one of our own errors, does not leave the command waiting for more", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const bad: unknown[] = [5, null, {}, new Uint16Array(2), "\ud800"];
  const later = (part: unknown) =>
    (async function* () {
      yield "a";
      yield part;
    })();
  const sources: unknown[] = [...bad.map(later), [1, 2], ["a", 5].values()];
  sources.push(sandbox.files.readStream("/nothing/there"));
  for (const stdin of sources)
    await expect(sandbox.exec("cat", { stdin: stdin as [] })).rejects.toMatchObject({
      code: "canceled",
      field: "stdin",
    });
  await expect(sandbox.stream("cat", { stdin: later(5) as never }).drain()).rejects.toMatchObject({
    field: "stdin",
  });
  // Half of an input is not taken for whole.
  const started = await sandbox.start("cat", { stdin: later(5) as never });
  expect((await started.wait()).outcome).toMatchObject({ type: "canceled" });
  await until("nothing runs", async () => (await sandbox.commands()).every((each) => !each.running));
});

test("the loss of a sandbox whose file is written to another one is not taken for the loss of that", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const lost = (async function* () {
    yield "a";
    throw new SandboxLostError("another sandbox is gone", { sandbox: "sb-other" });
  })();
  await expect(sandbox.files.write("/tmp/sandmesh-from-lost", lost)).rejects.toMatchObject({
    sandbox: "sb-other",
  });
  expect((await sandbox.exec("true")).ok).toBe(true);
});
