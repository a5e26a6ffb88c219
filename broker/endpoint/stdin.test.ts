// What becomes of bytes for a command's stdin: each is taken once, whoever sends it and how often. Against a real server.
import { describe, expect, setDefaultTimeout, test } from "bun:test";
import { MAX_STDIN_WRITERS } from "../contract/index.ts";
import { newId, type Scripted } from "./testing.ts";
import { argv, codeOf, playedSandbox } from "./testing-commands.ts";

// Hundreds of questions one after another, on a machine that others use.
setDefaultTimeout(30_000);
const box = playedSandbox();

interface Part {
  writer?: string;
  offset: number;
  text?: string;
  eof?: boolean;
}

/** A command, and what writes to it; answers what was received. */
async function typed(): Promise<{ command: Scripted; write(part: Part): Promise<unknown> }> {
  const id = newId();
  box.caller.stream("exec", { id, argv, stdin_open: true });
  const command = await box.begun();
  const write = async ({ text, ...part }: Part): Promise<unknown> => {
    const data = text === undefined ? {} : { data: Buffer.from(text) };
    return (await box.caller.ask("stdin", { id, ...part, ...data })).received;
  };
  return { command, write };
}

const refusal = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    (received) => ({ received }),
    ({ code, field, reason }) => ({ code, field, reason }),
  );
const OFFSET = { code: "invalid_request", field: "offset", reason: undefined };

test("repeated bytes are skipped, a gap is refused, order is kept", async () => {
  const { command, write } = await typed();
  let open = () => {};
  command.gate = new Promise<void>((go) => {
    open = go;
  });
  const parts = [
    write({ offset: 0, text: "ab" }),
    write({ offset: 2, text: "cd" }),
    write({ offset: 1, text: "bcde" }),
  ];
  await box.settled();
  open();
  expect(await Promise.all(parts)).toEqual([2, 4, 5]);
  expect(await refusal(write({ offset: 9, text: "z" }))).toEqual(OFFSET);
  await write({ offset: 5, eof: true });
  expect([command.stdinText, command.stdinClosed]).toEqual(["abcde", true]);
});

describe("of several writers", () => {
  test("each counts its own bytes: repeats are skipped, another's are not", async () => {
    const { command, write } = await typed();
    expect(await write({ writer: "a", offset: 0, text: "one " })).toBe(4);
    expect(await write({ writer: "b", offset: 0, text: "two " })).toBe(4);
    expect(await write({ writer: "a", offset: 0, text: "one three " })).toBe(10);
    expect(await write({ writer: "b", offset: 0, text: "two " })).toBe(4);
    expect(await write({ writer: "b", offset: 4, text: "four" })).toBe(8);
    expect(await write({ writer: "a", offset: 10 })).toBe(10);
    expect(command.stdinText).toBe("one two three four");
  });

  test("the answer names the writer, so that a daemon that counts all together is told apart", async () => {
    const id = newId();
    box.caller.stream("exec", { id, argv, stdin_open: true });
    await box.begun();
    expect(await box.caller.ask("stdin", { id, writer: "a", offset: 0 })).toEqual({
      received: 0,
      writer: "a",
    });
    expect(await box.caller.ask("stdin", { id, offset: 0 })).toEqual({ received: 0 });
  });

  test("a gap in one's bytes is refused, however many the others wrote", async () => {
    const { command, write } = await typed();
    await write({ writer: "a", offset: 0, text: "many bytes" });
    expect(await refusal(write({ writer: "b", offset: 3, text: "x" }))).toEqual(OFFSET);
    expect(command.stdinText).toBe("many bytes");
  });

  test("after one has closed it, what the others write is refused, and what they repeat is not", async () => {
    const { command, write } = await typed();
    await write({ writer: "b", offset: 0, text: "b" });
    await write({ writer: "a", offset: 0, text: "a", eof: true });
    const closed = { code: "session_closed", field: undefined, reason: "closed" };
    expect(await refusal(write({ writer: "b", offset: 1, text: "c" }))).toEqual(closed);
    expect(await refusal(write({ offset: 2, text: "c" }))).toEqual(OFFSET);
    expect(await write({ writer: "b", offset: 0, text: "b" })).toBe(1);
    expect(await write({ writer: "b", offset: 1, eof: true })).toBe(1);
    command.exit();
    expect(await refusal(write({ writer: "b", offset: 1, text: "c" }))).toEqual(closed);
    expect([command.stdinText, command.stdinClosed]).toEqual(["ba", true]);
  });

  test("the one that was silent for longest is given up for many: what it writes next is a gap, never skipped", async () => {
    const { command, write } = await typed();
    await write({ writer: "silent", offset: 0, text: "1" });
    await write({ writer: "heard", offset: 0, text: "2" });
    for (let i = 0; i < MAX_STDIN_WRITERS; i++) {
      await write({ writer: `w${i}`, offset: 0, text: "." });
      if (i === 5) await write({ writer: "heard", offset: 1, text: "3" });
    }
    expect(await refusal(write({ writer: "silent", offset: 1, text: "x" }))).toEqual(OFFSET);
    expect(await write({ writer: "heard", offset: 1, text: "34" })).toBe(3);
    expect(await codeOf(write({ writer: "anew", offset: 0, text: "x" }))).toBe("answered");
    expect(command.stdinText.replaceAll(".", "")).toBe("1234x");
  });
});

describe("without a writer's name the offset counts all bytes", () => {
  test("and what others have written in their place is told, not skipped", async () => {
    const { command, write } = await typed();
    expect(await write({ offset: 0, text: "one " })).toBe(4);
    expect(await write({ writer: "a", offset: 0, text: "two " })).toBe(4);
    // Repeated it is known as its own.
    expect(await write({ offset: 0, text: "one " })).toBe(8);
    expect(await write({ offset: 1, text: "ne" })).toBe(8);
    for (const text of ["x", "lost", "some of it lost"])
      expect(await refusal(write({ offset: 4, text }))).toEqual(OFFSET);
    expect(await refusal(write({ offset: 2, text: "e x" }))).toEqual(OFFSET);
    expect(await write({ offset: 8, text: "three" })).toBe(13);
    expect(await write({ offset: 0, text: "one " })).toBe(13);
    expect(await write({ offset: 8, text: "three four" })).toBe(18);
    expect(command.stdinText).toBe("one two three four");
  });

  test("and the stretches of so many turns are known that a repeat is", async () => {
    const { command, write } = await typed();
    for (let i = 0; i < 200; i++) {
      await write({ offset: 2 * i, text: "n" });
      await write({ writer: "a", offset: i, text: "a" });
    }
    expect(await write({ offset: 398, text: "n" })).toBe(400);
    expect(await refusal(write({ offset: 397, text: "n" }))).toEqual(OFFSET);
    // Too long ago to be known: as it ever was.
    expect(await write({ offset: 0, text: "n" })).toBe(400);
    expect(command.stdinText).toBe("na".repeat(200));
  });
});
