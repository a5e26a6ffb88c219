// What commands write: every byte, credit, and what of it is kept. Against a real server.
import { describe, expect, test } from "bun:test";
import { newId, until } from "./testing.ts";
import { argv, frameError, MiB, playedSandbox } from "./testing-commands.ts";

const box = playedSandbox({ retention: { outputs: 3, ids: 5, forgotten: 10, bytes: 4 * MiB, running: 8 } });
const bytesFrom = (length: number) => Buffer.from(Array.from({ length }, (_, i) => (i * 7) & 0xff));

describe("output", () => {
  test("without credit: one answer with the head of each stream, and what is cut is stated", async () => {
    const out = bytesFrom(300 * 1024);
    box.executor.script = (command) => {
      command.write(out.subarray(0, 100_000));
      command.write("err", "stderr");
      command.write(out.subarray(100_000));
      command.exit();
    };
    const answer = await box.caller.ask("exec", { argv });
    expect(Buffer.from(answer.stdout as Uint8Array).equals(out.subarray(0, 256 * 1024))).toBe(true);
    expect(answer.totals).toEqual({
      stdout: { total_bytes: out.length, dropped_bytes: out.length - 256 * 1024, dropped_from: 256 * 1024 },
      stderr: { total_bytes: 3, dropped_bytes: 0 },
    });
    expect(await box.caller.ask("exec", { argv }, "json")).toMatchObject({ stderr: "ZXJy" });
  });

  test.each([
    ["head", "0123", { total_bytes: 10, dropped_bytes: 6, dropped_from: 4 }],
    ["tail", "6789", { total_bytes: 10, dropped_bytes: 6, dropped_from: 0 }],
  ])("the limit keeps the %s and states the rest, streamed or not", async (keep, kept, total) => {
    box.executor.script = (command) => {
      for (const byte of "0123456789") command.write(byte);
      command.exit();
    };
    const request = { argv, output_limit_bytes: 4, keep };
    const plain = await box.caller.ask("exec", request);
    expect(Buffer.from(plain.stdout as Uint8Array).toString()).toBe(kept);
    expect((plain.totals as { stdout: unknown }).stdout).toEqual(total);
    const frames = box.caller.stream("exec", { ...request, credit_bytes: 1000 });
    expect((await frames.ended).totals).toMatchObject({ stdout: total });
    expect(frames.text("stdout")).toBe(kept);
  });

  test("keep fail ends the command at the limit, once, with that as its outcome", async () => {
    const answer = box.caller.ask("exec", { argv, output_limit_bytes: 4, keep: "fail" });
    const command = await box.begun();
    command.write("01234");
    command.write("5");
    const outcome = { type: "output_limit" as const, stream: "stdout" as const, limit_bytes: 4 };
    expect(command.canceled).toEqual({ as: outcome });
    command.sink.ended({ outcome, durationMs: 1 });
    expect(await answer).toMatchObject({ outcome, totals: { stdout: { total_bytes: 6, dropped_bytes: 2 } } });
  });

  test("a short command that streams is one frame; a long one's output comes while it runs", async () => {
    const { script } = box.executor;
    box.executor.script = (command) => {
      script(command);
      command.write("quick");
      // Within the time that output is gathered, however busy the machine.
      queueMicrotask(() => command.exit());
    };
    const short = box.caller.stream("exec", { argv, credit_bytes: MiB });
    await short.ended;
    expect([short.chunks.length, short.text("stdout")]).toEqual([0, "quick"]);
    box.executor.script = script;
    const long = box.caller.stream("exec", { argv, credit_bytes: MiB });
    const second = await box.begun(2);
    second.write("now");
    await until("the chunk", () => long.chunks.length === 1);
    second.write("rest");
    second.exit();
    await long.ended;
    expect(long.text("stdout")).toBe("nowrest");
  });

  test("commands that hold more than is to be held are paused the sooner, and go on when it is read", async () => {
    const count = 8;
    const credit_bytes = 256 * 1024;
    const readers = Array.from({ length: count }, () =>
      box.caller.stream("exec", { argv, credit_bytes, output_limit_bytes: 64 * MiB }),
    );
    await box.begun(count);
    const { commands } = box.executor;
    const part = Buffer.alloc(64 * 1024, "x");
    let written = 0;
    const write = () => {
      for (const command of commands) {
        if (command.paused) continue;
        command.write(part);
        written += part.length;
      }
    };
    await until("all are paused", () => {
      write();
      return commands.every((command) => command.paused);
    });
    // What may be held, and of each what is on its way and a little more.
    expect(written).toBeLessThan(4 * MiB + count * (credit_bytes + 3 * part.length));
    for (const reader of readers) reader.follow(credit_bytes).onChunk();
    await until("2 MiB of each", () => {
      write();
      return readers.every((reader) => reader.bytes("stdout") >= 2 * MiB);
    });
  });

  test("credit bounds what is sent, back-pressure what is held, and not a byte is lost or doubled", async () => {
    const out = bytesFrom(5 * MiB);
    const frames = box.caller.stream("exec", { argv, credit_bytes: 100_000 });
    const command = await box.begun();
    let at = 0;
    const feed = () => {
      for (; at < out.length && !command.paused; at += 50_000) command.write(out.subarray(at, at + 50_000));
    };
    feed();
    expect(command.paused).toBe(true);
    expect(at).toBeLessThan(2 * MiB);
    await until("the credit is used", () => frames.bytes("stdout") === 100_000);
    await box.settled();
    expect(frames.bytes("stdout")).toBe(100_000);
    // Late and doubled credit does no harm.
    frames.credit("stdout", 0, 50);
    frames.follow(100_000).onChunk();
    await until("the end", () => {
      feed();
      return at >= out.length;
    });
    command.exit();
    await frames.ended;
    expect(Buffer.from(frames.text("stdout"))).toBeDefined();
    const parts = frames.chunks.map(({ data }) => data);
    const rest = frames.last?.stdout;
    const all = Buffer.concat(rest instanceof Uint8Array ? [...parts, rest] : parts);
    expect(all.equals(out)).toBe(true);
    let offset = 0;
    for (const chunk of frames.chunks) {
      expect(chunk.offset).toBe(offset);
      expect(chunk.data.length).toBeLessThanOrEqual(256 * 1024);
      offset += chunk.data.length;
    }
  });

  test("what was sent and not acknowledged stays held, however much that was", async () => {
    const id = newId();
    const credit_bytes = 4 * MiB;
    const lost = box.caller.stream("exec", { id, argv, credit_bytes, output_limit_bytes: 64 * MiB });
    const command = await box.begun();
    const out = bytesFrom(256 * 1024);
    let at = 0;
    const acknowledged = 10 * MiB;
    lost.onChunk = () => {
      const received = lost.bytes("stdout");
      if (received <= acknowledged) lost.credit("stdout", received, received + credit_bytes);
    };
    await until("all that it may have is sent", () => {
      for (; at < 20 * MiB && !command.paused; at += out.length) command.write(out);
      return lost.bytes("stdout") >= acknowledged + 4 * MiB && command.paused;
    });
    // Its connection may have carried none of that.
    const again = box.caller.stream("attach", { id, from_stdout: acknowledged, credit_bytes });
    await until("the first of it", () => again.chunks.length > 0);
    expect(again.chunks[0]?.offset).toBe(acknowledged);
    command.exit();
  });

  test("who attaches before what is held is told so at once, also of a command that writes nothing more", async () => {
    const id = newId();
    const reader = box.caller
      .stream("exec", { id, argv, credit_bytes: MiB, output_limit_bytes: 64 * MiB })
      .follow(4 * MiB);
    const command = await box.begun();
    const out = bytesFrom(256 * 1024);
    for (let bytes = out.length; bytes <= 12 * MiB; bytes += out.length) {
      command.write(out);
      await until("it is read", () => reader.bytes("stdout") === bytes);
    }
    const attach = (from_stdout: number) =>
      box.caller.stream("attach", { id, from_stdout, credit_bytes: MiB });
    for (const from of [0, 1024]) expect(await frameError(attach(from).ended)).toBe("output_gone yes");
    const there = attach(12 * MiB);
    await box.settled();
    // Nobody else is disturbed.
    command.write("more");
    command.exit();
    await Promise.all([reader.ended, there.ended]);
    expect(there.text("stdout")).toBe("more");
  });

  test("of short ones, too, what readers have is let go of once all together hold more than they are to, and a command waits sooner", async () => {
    const ids = Array.from({ length: 4 }, newId);
    const out = bytesFrom(256 * 1024);
    const readers = ids.map((id) =>
      box.caller.stream("exec", { id, argv, credit_bytes: 4 * MiB }).follow(4 * MiB),
    );
    await box.begun(4);
    const { commands } = box.executor;
    const writeTo = async (i: number, bytes: number) => {
      for (let at = 0; at < bytes; at += out.length) commands[i]?.write(out);
      await until("it is read", () => readers[i]?.bytes("stdout") === bytes);
    };
    await writeTo(0, 3 * MiB);
    // All together hold no more than they may: it stays whole.
    const whole = box.caller.stream("attach", { id: ids[0], credit_bytes: 4 * MiB });
    await until("from its beginning", () => whole.chunks[0]?.offset === 0);
    whole.credit("stdout", 3 * MiB, 4 * MiB);
    for (const i of [1, 2]) await writeTo(i, 2 * MiB);
    // The first was silent, and holds nothing of it all the same.
    const late = box.caller.stream("attach", { id: ids[0], credit_bytes: 4 * MiB });
    expect(await frameError(late.ended)).toBe("output_gone yes");
    await box.settled();
    for (let at = 0; at < 4.5 * MiB; at += out.length) commands[1]?.write(out);
    // Of a young command the first writes are gathered, and the second takes both along: what follows waits for its turn.
    for (const _ of [1, 2, 3]) commands[3]?.write(out);
    expect(commands[3]?.paused).toBe(true);
    for (const command of commands) command.exit();
  });

  test("several readers from their own offsets at once, and one after the end", async () => {
    const id = newId();
    const first = box.caller.stream("exec", { id, argv, credit_bytes: MiB }).follow(MiB);
    const command = await box.begun();
    command.write("0123456789");
    const second = box.caller.stream("attach", { id, from_stdout: 4, credit_bytes: MiB }).follow(MiB);
    await until("both", () => first.chunks.length > 0 && second.chunks.length > 0);
    command.write("e", "stderr");
    command.exit();
    await Promise.all([first.ended, second.ended]);
    expect([first.text("stdout"), second.text("stdout"), second.text("stderr")]).toEqual([
      "0123456789",
      "456789",
      "e",
    ]);
    const late = box.caller.stream("attach", { id, from_stdout: 8 });
    await late.ended;
    expect(late.text("stdout")).toBe("89");
    expect(late.last?.totals).toMatchObject({ stdout: { total_bytes: 10, dropped_bytes: 0 } });
  });

  test("a stream's end is told behind its last byte while the command goes on, to who reads and to who comes later", async () => {
    const id = newId();
    const first = box.caller.stream("exec", { id, argv, credit_bytes: 4 });
    const command = await box.begun();
    command.write("0123456789");
    command.sink.outputEnd?.("stdout");
    await until("its credit is used", () => first.bytes("stdout") === 4);
    await box.settled();
    expect(first.chunks.map(({ eof }) => eof)).toEqual([false]);
    first.credit("stdout", 4, 100);
    const later = box.caller.stream("attach", { id, from_stdout: 10, credit_bytes: MiB });
    await until("both are told", () => first.chunks.length === 3 && later.chunks.length === 1);
    const end = { stream: "stdout", offset: 10, data: Buffer.alloc(0), eof: true };
    for (const { chunks } of [first, later]) expect(chunks.at(-1)).toEqual(end);
    command.exit();
    await Promise.all([first.ended, later.ended]);
    expect([first.text("stdout"), first.chunks.length, later.chunks.length]).toEqual(["0123456789", 3, 1]);
  });

  test("who asks anew is read to in place of his first question, at once; others read on", async () => {
    const id = newId();
    const request = { argv, credit_bytes: 1000, output_limit_bytes: 64 * MiB };
    const dead = box.caller.stream("exec", { id, ...request });
    const command = await box.begun();
    const other = box.caller.stream("attach", { id, credit_bytes: 1000 });
    command.write(Buffer.alloc(2000));
    const again = { id, reader: dead.answers.token, credit_bytes: 1000 };
    const second = box.caller.stream("attach", { ...again, from_stdout: 1000 });
    expect((await dead.ended).error).toMatchObject({
      code: "busy",
      reason: "reader_stalled",
      message: expect.stringContaining("a later question of the same reader"),
    });
    // Nothing was heard of that one either, so that it is asked as before.
    const third = box.caller.stream("exec", { ...request, ...again });
    expect((await second.ended).error).toMatchObject({ code: "busy", reason: "reader_stalled" });
    for (const reader of [third, other]) reader.credit("stdout", 1000, 2000);
    command.exit();
    await Promise.all([third.ended, other.ended]);
    expect([third, other].map((reader) => reader.text("stdout").length)).toEqual([2000, 2000]);
  });

  test("a reader that stalls is given up where another reads: the command goes on", async () => {
    const id = newId();
    const dead = box.caller.stream("exec", { id, argv, credit_bytes: 1000, output_limit_bytes: 64 * MiB });
    const command = await box.begun();
    const live = box.caller.stream("attach", { id, credit_bytes: MiB }).follow(MiB);
    await box.settled();
    let written = 0;
    await until(
      "the other's end",
      () => {
        for (; written < 6 * MiB && !command.paused; written += 64 * 1024)
          command.write(Buffer.alloc(64 * 1024));
        return written >= 6 * MiB;
      },
      20_000,
    );
    command.exit();
    await live.ended;
    expect(live.last).toMatchObject({ totals: { stdout: { total_bytes: written, dropped_bytes: 0 } } });
    expect(await frameError(dead.ended)).toBe("busy reader_stalled yes");
  }, 30_000);

  test("a detached command is answered at its start, and read later", async () => {
    const id = newId();
    const started = await box.caller.ask("exec", { id, argv, detach: true });
    expect(started).toEqual({ type: "started", id, incarnation: box.endpoint.incarnation, pid: 7 });
    box.executor.last.write("later");
    box.executor.last.exit();
    const frames = box.caller.stream("attach", { id });
    await frames.ended;
    expect(frames.text("stdout")).toBe("later");
    expect(await box.caller.ask("commands")).toMatchObject({
      commands: [{ id, command: "x", running: false, outcome: { code: 0 }, pid: 7 }],
    });
  });
});
