// Readers beside one another: what one does not take keeps no other waiting. Against a real server.
import { describe, expect, test } from "bun:test";
import { encode } from "../contract/index.ts";
import { Caller, type Frames, newId, TENANT, until } from "./testing.ts";
import { argv, frameError, MiB, playedSandbox } from "./testing-commands.ts";

const box = playedSandbox();
const PART = Buffer.alloc(64 * 1024, "0123456789");
const request = { argv, output_limit_bytes: 1024 * MiB };

/** The commands write for as long as they are let. */
function writeAll(): void {
  for (const command of box.executor.commands) while (!command.paused) command.write(PART);
}

/** More than the connection's budget altogether, of which their readers say nothing. */
async function takingNothing(count = 20): Promise<Frames[]> {
  const before = box.executor.commands.length;
  const readers = Array.from({ length: count }, () =>
    box.caller.stream("exec", { ...request, credit_bytes: MiB }),
  );
  await box.begun(before + count);
  await until("all have what they get", () => {
    writeAll();
    return readers.every((reader) => reader.bytes("stdout") >= MiB / 2);
  });
  return readers;
}

/** As SDKs do: says how far it is when it has half of its credit. */
function byHalves(reader: Frames, credit: number): Frames {
  let granted = credit;
  reader.onChunk = () => {
    const received = reader.bytes("stdout");
    if (received + credit - granted < credit / 2) return;
    granted = received + credit;
    reader.credit("stdout", received, granted);
  };
  return reader;
}

describe("beside readers that take nothing", () => {
  test("a command's output and a file come whole, to the same connection and to another", async () => {
    await takingNothing();
    const other = new Caller(await box.server.user(TENANT, "bob"), box.sandbox);
    box.executor.files.read = async () => {
      let left = 64;
      return { read: async () => (left-- > 0 ? Buffer.from(PART) : undefined), close: async () => {} };
    };
    for (const caller of [box.caller, other]) {
      const stream = byHalves(caller.stream("exec", { ...request, credit_bytes: MiB }), MiB);
      await until("4 MiB of it", () => {
        writeAll();
        return stream.bytes("stdout") >= 4 * MiB;
      });
      const file = caller.stream("read", { path: "x", credit_bytes: MiB }).follow(MiB);
      await until("the file's end", () => file.last !== undefined);
      expect(file.last).toMatchObject({ type: "file_end", total_bytes: 64 * PART.length });
    }
  });
});

test("many readers that each say how far they are at half of their credit do not wait for one another", async () => {
  const count = 24;
  const credit = 2 * MiB;
  const readers = Array.from({ length: count }, () =>
    byHalves(box.caller.stream("exec", { ...request, credit_bytes: credit }), credit),
  );
  await box.begun(count);
  await until(
    "4 MiB of each",
    () => {
      writeAll();
      return readers.every((reader) => reader.bytes("stdout") >= 4 * MiB);
    },
    20_000,
  );
}, 30_000);

describe("a reader that says that it is gone", () => {
  const leave = (reader: Frames) =>
    box.caller.link.publish(
      box.caller.subject("credit"),
      encode({ token: reader.answers.token, stream: "stdout", received: 0, until: 0, left: true }),
    );

  test("holds back its command no longer, is sent nothing more, and another reads on", async () => {
    const id = newId();
    const gone = box.caller.stream("exec", { ...request, id, credit_bytes: 1000 });
    const command = await box.begun();
    writeAll();
    leave(gone);
    await until("the command goes on", () => !command.paused);
    command.write("rest");
    const later = box.caller.stream("attach", { id, credit_bytes: 0 });
    command.exit();
    await box.settled();
    later.credit("stdout", 0, 16 * MiB);
    expect(await frameError(later.ended)).toBe("answered");
    expect([later.text("stdout").endsWith("rest"), gone.last, gone.bytes("stdout")]).toEqual([
      true,
      undefined,
      1000,
    ]);
  });

  test("is let go of where its command has ended, too, with what was on its way to it", async () => {
    const readers = await takingNothing(17);
    for (const command of box.executor.commands) command.exit();
    for (const reader of readers) leave(reader);
    // Its whole credit at once, of a budget that is whole again.
    const whole = box.caller.stream("exec", { ...request, credit_bytes: 16 * MiB });
    await box.begun(18);
    await until("all of it", () => {
      writeAll();
      return whole.bytes("stdout") === 16 * MiB;
    });
  });

  test("of a file lets go of that", async () => {
    let closed = false;
    box.executor.files.read = async () => ({
      read: async () => Buffer.from(PART),
      close: async () => {
        closed = true;
      },
    });
    const reader = box.caller.stream("read", { path: "x", credit_bytes: 1000 });
    await until("its credit is used", () => reader.bytes("data") === 1000);
    leave(reader);
    await until("the file is closed", () => closed);
  });
});
