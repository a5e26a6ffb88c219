// A command's output while it runs, through the SDK, against real processes.
import { expect, test } from "bun:test";
import { alive } from "../../../agent/exec/testing.ts";
import { until } from "../../../broker/server/testing.ts";
import { CanceledError, newUuidV7 } from "../../../sdk/typescript/mod.ts";
import { liveBox } from "./mesh.ts";

test("streams that were left, or that nobody reads on, keep no other of the sandbox waiting", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const other = (await sandbox.live.connect()).sandbox(sandbox.id);
  const first = async () => {
    for await (const { data } of sandbox.stream("yes")) return data.length;
    return 0;
  };
  // The last of them would have waited for a minute: those before used up what may be on its way at once.
  for (let left = 0; left < 21; left++) expect(await first()).toBeGreaterThan(0);
  const held = Array.from({ length: 20 }, () => sandbox.stream("yes")[Symbol.asyncIterator]());
  for (const iterator of held) expect((await iterator.next()).done).toBe(false);
  for (const each of [sandbox, other]) {
    const { stdout } = await each.exec("head -c 6000000 /dev/zero");
    expect(stdout.bytes.length).toBe(6_000_000);
  }
  for (const iterator of held) await iterator.return();
}, 40_000);

test("a stream gives chunks while the command runs, and its end", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const fifo = `/tmp/sandmesh-fifo-${newUuidV7()}`;
  await sandbox.exec(["mkfifo", fifo], { check: true });
  const stream = sandbox.stream(`echo one; cat ${fifo}; echo oops >&2; exit 9`);
  const seen: string[] = [];
  for await (const chunk of stream) {
    seen.push(`${chunk.stream}:${chunk.offset}:${chunk.text}`);
    // Only now may the command go on: so the first chunk came while it ran.
    if (seen.length === 1) await sandbox.exec(`echo two > ${fifo}`, { check: true });
  }
  expect(seen).toEqual(["stdout:0:one\n", "stdout:4:two\n", "stderr:0:oops\n"]);
  expect((await stream.end).outcome).toEqual({ type: "exited", code: 9 });
  await sandbox.files.remove(fifo);
});

test("a stream gives all that a command writes, not only what is held of one that nobody reads", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  let total = 0;
  for await (const chunk of sandbox.stream("head -c 20000000 /dev/zero")) total += chunk.data.length;
  expect(total).toBe(20_000_000);
  const tail = sandbox.stream("head -c 20000000 /dev/zero", { keep: "tail", outputLimit: 1000 });
  await tail.drain();
  expect((await tail.end).totals.stdout.total_bytes).toBe(20_000_000);
});

test("reading a stream twice is the caller's mistake, not a fault of sandmesh's own", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const stream = sandbox.stream("echo once");
  await stream.drain();
  await expect(stream.drain()).rejects.toMatchObject({ code: "invalid_request" });
});

test("leaving a stream's loop ends the command", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const stream = sandbox.stream("echo $$; exec sleep 600");
  let pid = 0;
  for await (const chunk of stream) {
    pid = Number(chunk.text);
    break;
  }
  await until("it is gone", async () => !(await alive(pid)));
  expect(await stream.end.catch((error: unknown) => error)).toBeInstanceOf(CanceledError);
});

test("a slow reader slows the command, and every byte arrives in order", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const stream = sandbox.stream("seq 1 1500000", { outputLimit: "64MiB" });
  const hash = new Bun.CryptoHasher("sha256");
  let offset = 0;
  let chunks = 0;
  for await (const chunk of stream) {
    expect(chunk.offset).toBe(offset);
    offset += chunk.data.length;
    hash.update(chunk.data);
    if (++chunks % 10 === 0) await new Promise((go) => setTimeout(go, 5));
  }
  const expected = new Bun.CryptoHasher("sha256");
  let line = "";
  for (let i = 1; i <= 1_500_000; i++) {
    line += `${i}\n`;
    if (i % 10_000 === 0) {
      expected.update(line);
      line = "";
    }
  }
  expect(hash.digest("hex")).toBe(expected.digest("hex"));
  expect((await stream.end).ok).toBe(true);
});
