// Commands: at most once, every byte, credit, retention, and an answer whatever happens. Against a real server.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { decode, throwIfError } from "../contract/index.ts";
import type { Link } from "../link/link.ts";
import { type TestServer, testServer } from "../server/testing.ts";
import { type Booted, boot, newId, PoolDouble, TENANT, until } from "./testing.ts";

let server: TestServer;
let user: Link;
let box: Booted;
beforeAll(async () => {
  server = await testServer();
  const pool = await PoolDouble.start(server);
  pool.grants = newId();
  user = await server.user(TENANT, "ann");
});
afterAll(() => server.close());
beforeEach(async () => {
  box = await boot(server, user, { retention: { outputs: 3, ids: 5, bytes: 4 * MiB, running: 8 } });
});
afterEach(() => box.endpoint.close());

const MiB = 1024 * 1024;
const argv = ["x"];
const codeOf = async (work: Promise<unknown>) =>
  work.then(
    () => "answered",
    (error: { code: string; started?: string; reason?: string }) =>
      [error.code, error.reason, error.started].filter((part) => part !== undefined).join(" "),
  );
/** An error that came as the last frame. */
const frameError = async (last: Promise<Record<string, unknown>>) =>
  codeOf(last.then((frame) => throwIfError(frame)));
const begun = async (count = 1) => {
  await until("the command", () => box.executor.commands.length >= count);
  return box.executor.last;
};
/** Everything published before has been handled. */
const settled = () => box.caller.ask("ping");
const bytesFrom = (length: number, salt = 0) =>
  Buffer.from(Array.from({ length }, (_, i) => (i * 7 + salt) & 0xff));

describe("at most once", () => {
  test("the same id while it runs attaches: one command, two answers", async () => {
    const id = newId();
    const answers = [box.caller.ask("exec", { id, argv }), box.caller.ask("exec", { id, argv })];
    const command = await begun();
    await settled();
    command.write("once");
    command.exit(2);
    for (const answer of await Promise.all(answers))
      expect(answer).toMatchObject({ id, outcome: { code: 2 } });
    expect(box.executor.commands).toHaveLength(1);
  });

  test("the same id after its end answers the stored result", async () => {
    const id = newId();
    box.executor.script = (command) => {
      command.write("out");
      command.exit(3);
    };
    const first = await box.caller.ask("exec", { id, argv });
    expect(await box.caller.ask("exec", { id, argv })).toEqual(first);
    expect(box.executor.commands).toHaveLength(1);
  });

  test("the same id with other content is a conflict, large or small, and runs nothing", async () => {
    const id = newId();
    const large = newId();
    const long = "y".repeat(5000);
    box.executor.script = (command) => command.exit();
    await box.caller.ask("exec", { id, argv, env: { A: "1", B: "2" } });
    await box.caller.ask("exec", { id: large, argv: [long] });
    expect(await codeOf(box.caller.ask("exec", { id, argv: ["y"], env: { A: "1", B: "2" } }))).toBe(
      "conflict",
    );
    expect(await codeOf(box.caller.ask("exec", { id: large, argv: [`${long}z`] }))).toBe("conflict");
    expect(await codeOf(box.caller.ask("exec", { id, argv, env: { B: "2", A: "1" } }))).toBe("answered");
    // What a request need not say may be said; what it says otherwise is something else.
    const said = { keep: "head", merge: false, grace_ms: 1000, env: { A: "1", B: "2" } };
    expect(await codeOf(box.caller.ask("exec", { id, argv, ...said }))).toBe("answered");
    expect(await codeOf(box.caller.ask("exec", { id, argv, ...said, merge: true }))).toBe("conflict");
    expect(await codeOf(box.caller.ask("exec", { id: large, argv: [long], credit_bytes: 9 }))).toBe(
      "answered",
    );
    expect(box.executor.commands).toHaveLength(2);
  });

  test("a forgotten id never runs again, though it is older than all that is known", async () => {
    box.executor.script = (command) => {
      command.write("output");
      command.exit();
    };
    const ids = Array.from({ length: 7 }, newId);
    for (const id of ids) await box.caller.ask("exec", { id, argv });
    const [first = "", , third = "", , fifth = ""] = ids;
    const ran = box.executor.commands.length;
    expect(await codeOf(box.caller.ask("exec", { id: first, argv }))).toBe("unknown_command unknown");
    expect(await codeOf(box.caller.ask("exec", { id: third, argv }))).toBe("output_gone yes");
    expect(await codeOf(box.caller.ask("exec", { id: fifth, argv }))).toBe("answered");
    expect(await codeOf(box.caller.ask("attach", { id: newId() }))).toBe("unknown_command unknown");
    // Who has all the output still learns how it ended.
    expect(await box.caller.ask("attach", { id: third, from_stdout: 6 })).toMatchObject({
      outcome: { code: 0 },
    });
    expect(box.executor.commands).toHaveLength(ran);
  });

  test("output beyond the memory for it pushes out the oldest, never the newest", async () => {
    box.executor.script = (command) => {
      command.write(Buffer.alloc(1.5 * MiB));
      command.exit();
    };
    const ids = [newId(), newId(), newId()];
    for (const id of ids) await box.caller.ask("exec", { id, argv });
    expect(await codeOf(box.caller.ask("exec", { id: ids[0], argv }))).toBe("output_gone yes");
    expect(await codeOf(box.caller.ask("exec", { id: ids[2], argv }))).toBe("answered");
  });

  test("more than may run at once is busy, and not started", async () => {
    for (let i = 0; i < 8; i++) box.caller.stream("exec", { argv });
    await begun(8);
    expect(await codeOf(box.caller.ask("exec", { argv }))).toBe("busy no");
  });
});

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
    const command = await begun();
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
    const second = await begun(2);
    second.write("now");
    await until("the chunk", () => long.chunks.length === 1);
    second.write("rest");
    second.exit();
    await long.ended;
    expect(long.text("stdout")).toBe("nowrest");
  });

  test("credit bounds what is sent, back-pressure what is held, and not a byte is lost or doubled", async () => {
    const out = bytesFrom(5 * MiB);
    const frames = box.caller.stream("exec", { argv, credit_bytes: 100_000 });
    const command = await begun();
    let at = 0;
    const feed = () => {
      for (; at < out.length && !command.paused; at += 50_000) command.write(out.subarray(at, at + 50_000));
    };
    feed();
    expect(command.paused).toBe(true);
    expect(at).toBeLessThan(2 * MiB);
    await until("the credit is used", () => frames.bytes("stdout") === 100_000);
    await settled();
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
    const command = await begun();
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

  test("several readers from their own offsets at once, and one after the end", async () => {
    const id = newId();
    const first = box.caller.stream("exec", { id, argv, credit_bytes: MiB }).follow(MiB);
    const command = await begun();
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
    const command = await begun();
    command.write("0123456789");
    command.sink.outputEnd?.("stdout");
    await until("its credit is used", () => first.bytes("stdout") === 4);
    await settled();
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

  test("a reader that stalls is given up where another reads: the command goes on", async () => {
    const id = newId();
    const dead = box.caller.stream("exec", { id, argv, credit_bytes: 1000, output_limit_bytes: 64 * MiB });
    const command = await begun();
    const live = box.caller.stream("attach", { id, credit_bytes: MiB }).follow(MiB);
    await settled();
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

describe("to a running command", () => {
  test("stdin by offset: repeated bytes are skipped, a gap is refused, order is kept", async () => {
    const id = newId();
    box.caller.stream("exec", { id, argv, stdin_open: true });
    const command = await begun();
    let open = () => {};
    command.gate = new Promise<void>((go) => {
      open = go;
    });
    const data = (text: string) => Buffer.from(text);
    const parts = [
      box.caller.ask("stdin", { id, offset: 0, data: data("ab") }),
      box.caller.ask("stdin", { id, offset: 2, data: data("cd") }),
      box.caller.ask("stdin", { id, offset: 1, data: data("bcde") }),
    ];
    await settled();
    open();
    expect((await Promise.all(parts)).map(({ received }) => received)).toEqual([2, 4, 5]);
    expect(await codeOf(box.caller.ask("stdin", { id, offset: 9, data: data("z") }))).toBe("invalid_request");
    await box.caller.ask("stdin", { id, offset: 5, eof: true });
    expect([command.stdinText, command.stdinClosed]).toEqual(["abcde", true]);
  });

  test("signal, resize and cancel reach it, and say whether it still ran", async () => {
    const id = newId();
    const answer = box.caller.ask("exec", { id, argv });
    const command = await begun();
    expect(await box.caller.ask("signal", { id, signal: "SIGINT" })).toEqual({ running: true });
    expect(await box.caller.ask("resize", { id, rows: 5, cols: 6 })).toEqual({ running: true });
    expect(await box.caller.ask("cancel", { id })).toEqual({ running: true });
    expect([command.signals, command.sizes, command.canceled]).toEqual([
      ["SIGINT"],
      [[5, 6]],
      { as: undefined },
    ]);
    command.sink.ended({ outcome: { type: "canceled", killed: 1, signal: "SIGTERM" }, durationMs: 1 });
    expect(await answer).toMatchObject({ outcome: { type: "canceled" } });
    expect(await box.caller.ask("cancel", { id })).toEqual({ running: false });
    expect(await codeOf(box.caller.ask("cancel", { id: newId() }))).toBe("unknown_command unknown");
  });

  test("an executor that never ends a command does not leave the caller without an answer", async () => {
    const answer = codeOf(box.caller.ask("exec", { argv, timeout_ms: 1, grace_ms: 0 }));
    expect(await answer).toBe("internal yes");
  }, 15_000);
});

describe("sh", () => {
  const sh = async (line: string, headers?: Record<string, string>) => {
    const options = { timeoutMs: 5_000, ...(headers === undefined ? {} : { headers }) };
    return user.request(box.sandbox, box.caller.subject("sh"), Buffer.from(line), options);
  };

  test("a raw line is answered with raw output, and the outcome in headers", async () => {
    box.executor.script = (command) => {
      command.write("raw {\n");
      command.exit(3);
    };
    const answer = await sh("{ echo hi; }", { "Timeout-Ms": "500" });
    expect(Buffer.from(answer.data).toString()).toBe("raw {\n");
    expect([answer.header("Sandmesh-Outcome"), answer.header("Sandmesh-Status")]).toEqual(["exited 3", "3"]);
    const { shell, merge, timeout_ms } = box.executor.last.request;
    expect({ shell, merge, timeout_ms }).toEqual({ shell: "{ echo hi; }", merge: true, timeout_ms: 500 });
  });

  test("what cannot be run says so in a header", async () => {
    expect((await sh("x", { "Timeout-Ms": "soon" })).header("Sandmesh-Error")).toBe("invalid_request");
    expect((await sh("a\0b")).header("Sandmesh-Error")).toBe("invalid_request");
    box.executor.script = () => {
      throw new Error("a bug");
    };
    expect((await sh("x")).header("Sandmesh-Error")).toBe("internal");
  });

  test("a long output is cut, and the cut stated", async () => {
    box.executor.script = (command) => {
      command.write(Buffer.alloc(300 * 1024));
      command.exit();
    };
    const answer = await sh("x");
    expect(answer.data.length).toBe(256 * 1024);
    expect(answer.header("Sandmesh-Dropped-Bytes")).toBe(String(44 * 1024));
  });
});

test("a body that no schema takes is a typed answer that names the field", async () => {
  const answer = await user.request(box.sandbox, box.caller.subject("exec"), Buffer.from('{"argv":7}'), {
    timeoutMs: 5_000,
  });
  expect(decode(answer.data)).toMatchObject({ error: { code: "invalid_request", field: "argv" } });
});
