// What is held of a long stream once its command has ended, and its readers have said what they have. On a real server.
import { expect, test } from "bun:test";
import { encode } from "../contract/index.ts";
import { type Frames, newId, type Scripted, until } from "./testing.ts";
import { argv, frameError, MiB, playedSandbox } from "./testing-commands.ts";

const box = playedSandbox();
const BYTES = 14 * MiB;
const part = Buffer.alloc(256 * 1024, "0123456789");
/** Of an ended command's stream, that every reader has: the last part, which a writer's parts need not begin with. */
const LAST_BYTES = 256 * 1024;

const attach = (id: string, from_stdout: number): Frames =>
  box.caller.stream("attach", { id, from_stdout, credit_bytes: 16 * MiB });

/** A command that has written it all and ended, of which the reader has said that it has so much. */
async function ended(id: string, acknowledged: number): Promise<Frames> {
  const ahead = 4 * MiB;
  const reader = box.caller.stream("exec", { id, argv, credit_bytes: ahead, output_limit_bytes: 64 * MiB });
  const command = await box.begun();
  reader.onChunk = () => {
    const received = Math.min(reader.bytes("stdout"), acknowledged);
    const until = received === acknowledged ? BYTES : received + ahead;
    reader.credit("stdout", received, until);
  };
  let at = 0;
  await until("all is written, and read", () => {
    for (; at < BYTES && !command.paused; at += part.length) command.write(part);
    return reader.bytes("stdout") === BYTES;
  });
  await box.settled();
  command.exit();
  await reader.ended;
  return reader;
}

const isHeld = async (id: string, from: number): Promise<boolean> => {
  const frames = attach(id, from);
  const { error } = await frames.ended;
  if (error !== undefined) expect(await frameError(frames.ended)).toBe("output_gone yes");
  else frames.credit("stdout", BYTES, BYTES);
  await box.settled();
  return error === undefined;
};

test("what a reader had not said that it has is held, and goes when it says so after the end, but for the last part", async () => {
  const id = newId();
  const reader = await ended(id, 10 * MiB);
  expect(await isHeld(id, 10 * MiB)).toBe(true);
  reader.credit("stdout", BYTES - 64 * 1024, BYTES);
  await box.settled();
  expect(await isHeld(id, BYTES - LAST_BYTES - 64 * 1024 - 1)).toBe(false);
  expect(await isHeld(id, BYTES - LAST_BYTES - 64 * 1024)).toBe(true);
});

test("where the reader has it all at the end, the last part alone is held, whole", async () => {
  const id = newId();
  await ended(id, BYTES);
  expect(await isHeld(id, BYTES - LAST_BYTES - 1)).toBe(false);
  const last = attach(id, BYTES - LAST_BYTES);
  await last.ended;
  const all = Buffer.concat(Array.from({ length: BYTES / part.length }, () => part));
  expect(last.text("stdout") === all.subarray(-LAST_BYTES).toString()).toBe(true);
});

test("of two readers the one that has less is heeded, until it has left", async () => {
  const id = newId();
  const reader = await ended(id, 10 * MiB);
  const other = attach(id, 10 * MiB);
  await other.ended;
  reader.credit("stdout", BYTES, BYTES);
  await box.settled();
  expect(await isHeld(id, 10 * MiB)).toBe(true);
  const left = { token: other.answers.token, stream: "stdout", received: 0, until: 0, left: true };
  box.user.publish(box.caller.subject("credit"), encode({ version: 1, ...left }));
  await box.settled();
  expect(await isHeld(id, BYTES - LAST_BYTES - 1)).toBe(false);
  expect(await isHeld(id, BYTES - LAST_BYTES)).toBe(true);
});

test("what was held whole at the end, since nobody read it, stays so however often it is read", async () => {
  const id = newId();
  await box.caller.ask("exec", { id, argv, detach: true, output_limit_bytes: 64 * MiB });
  const command = await box.begun();
  for (let at = 0; at < BYTES; at += part.length) command.write(part);
  command.exit();
  for (const _ of [1, 2]) expect(await isHeld(id, 0)).toBe(true);
});

test("a reader whose end gives another of the same command room to end is heeded by that one's end, too", async () => {
  const options = { argv, credit_bytes: 16 * MiB, output_limit_bytes: 64 * MiB };
  const write = (command: Scripted, bytes: number): void => {
    for (let at = 0; at < bytes; at += part.length) command.write(part);
  };
  const id = newId();
  const first = box.caller.stream("exec", { id, ...options });
  const command = await box.begun();
  first.onChunk = () => {
    if (first.bytes("stdout") <= 7 * MiB) first.credit("stdout", first.bytes("stdout"), BYTES);
  };
  const second = box.caller.stream("attach", { id, credit_bytes: MiB / 2 });
  second.onChunk = () => {
    const received = Math.min(second.bytes("stdout"), 13 * MiB);
    second.credit("stdout", received, received === 13 * MiB ? BYTES : received + MiB / 2);
  };
  for (let at = MiB; at <= 13 * MiB; at += MiB) {
    write(command, MiB);
    await until("both read it", () => first.bytes("stdout") === at && second.bytes("stdout") === at);
  }
  await box.settled();
  // Of what may be on its way at once nothing is left, so that the second waits, and the first has what is its own.
  const other = box.caller.stream("exec", { id: newId(), ...options });
  const filler = await box.begun(2);
  write(filler, 10.75 * MiB);
  await until("most of it comes", () => other.bytes("stdout") >= 9.5 * MiB);
  await box.settled();
  write(command, MiB);
  await until("the first has all", () => first.bytes("stdout") === BYTES);
  await box.settled();
  expect(second.bytes("stdout")).toBeLessThan(BYTES - part.length);
  command.exit();
  await Promise.all([first.ended, second.ended]);
  expect(await isHeld(id, 7 * MiB)).toBe(true);
});
