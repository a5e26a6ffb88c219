import { expect, spyOn, test } from "bun:test";
import {
  ConnectionError,
  DeadlineError,
  FileError,
  InvalidRequestError,
  MAX_CHUNK_BYTES,
} from "../../../broker/contract/index.ts";
import { type Part, partsOf, sendParts } from "./parts.ts";

async function all(source: Iterable<Uint8Array>): Promise<Part[]> {
  const parts: Part[] = [];
  for await (const part of partsOf(source)) parts.push(part);
  return parts;
}

const joined = (parts: Part[]): Buffer => Buffer.concat(parts.map((part) => part.data));

/** A receiver as strict as the daemon: parts in order, repeated ones skipped, gaps refused. */
class Receiver {
  bytes = Buffer.alloc(0);
  done = false;
  mostInFlight = 0;
  #inFlight = 0;
  /** Called for each part sent: what it throws is what the sender sees, before or after the part arrived. */
  fault: (sent: number) => { lose?: boolean; error?: Error } = () => ({});
  #sent = 0;

  readonly send = async (part: Part): Promise<void> => {
    this.mostInFlight = Math.max(this.mostInFlight, ++this.#inFlight);
    try {
      const { lose, error } = this.fault(++this.#sent);
      if (lose !== true) this.#take(part);
      await new Promise((go) => setImmediate(go));
      if (error !== undefined) throw error;
    } finally {
      this.#inFlight--;
    }
  };

  #take(part: Part): void {
    if (part.offset > this.bytes.length) throw new InvalidRequestError("offset: a gap", { field: "offset" });
    const fresh = part.data.subarray(this.bytes.length - part.offset);
    this.bytes = Buffer.concat([this.bytes, fresh]);
    this.done ||= part.last;
  }
}

const content = (length: number): Buffer => Buffer.from(Uint8Array.from({ length }, (_, i) => (i * 31) >> 3));

test("any cutting of the source arrives as the same bytes, in parts of the largest size, one of them last", async () => {
  for (const length of [
    0,
    1,
    MAX_CHUNK_BYTES - 1,
    MAX_CHUNK_BYTES,
    MAX_CHUNK_BYTES + 1,
    3 * MAX_CHUNK_BYTES,
  ]) {
    for (const piece of [1000, MAX_CHUNK_BYTES, 5 * MAX_CHUNK_BYTES]) {
      const bytes = content(length);
      const pieces: Uint8Array[] = [];
      for (let at = 0; at < length; at += piece) pieces.push(bytes.subarray(at, at + piece));
      const parts = await all(pieces);
      expect(joined(parts).equals(bytes)).toBe(true);
      expect(parts.map((part) => part.last)).toEqual(parts.map((_, i) => i === parts.length - 1));
      expect(parts.length).toBe(Math.max(1, Math.ceil(length / MAX_CHUNK_BYTES)));
    }
  }
});

test("parts and answers that are lost are sent again, and nothing is taken twice or left out", async () => {
  const bytes = content(9 * MAX_CHUNK_BYTES + 17);
  const receiver = new Receiver();
  receiver.fault = (sent) => {
    if (sent === 2) return { lose: true, error: new DeadlineError("no answer") };
    if (sent === 7) return { error: new ConnectionError("cut") };
    return {};
  };
  expect(await sendParts([bytes], { send: receiver.send })).toBe(bytes.length);
  expect(receiver.bytes.equals(bytes)).toBe(true);
  expect(receiver.done).toBe(true);
});

test("in flight are at most eight parts, and four where they take their time: memory is bounded, and a slow way not choked", async () => {
  const bytes = content(30 * MAX_CHUNK_BYTES);
  const soon = new Receiver();
  await sendParts([bytes], { send: soon.send });
  expect(soon.mostInFlight).toBe(8);
  const clock = spyOn(Date, "now");
  try {
    const late = new Receiver();
    let now = 0;
    clock.mockImplementation(() => (now += 600));
    await sendParts([bytes], { send: late.send });
    expect(late.mostInFlight).toBe(4);
  } finally {
    clock.mockRestore();
  }
});

test("what the receiver refuses ends the sending with its error", async () => {
  const receiver = new Receiver();
  receiver.fault = (sent) => (sent === 3 ? { error: new FileError("full", { reason: "ENOSPC" }) } : {});
  const failure = await sendParts([content(6 * MAX_CHUNK_BYTES)], { send: receiver.send }).catch(
    (error: unknown) => error,
  );
  expect(failure).toMatchObject({ code: "file_error", reason: "ENOSPC" });
});

test("a way that stays broken is given up, with its error", async () => {
  const send = async () => {
    throw new DeadlineError("no answer");
  };
  const failure = await sendParts([content(10)], { send, giveUpMs: 1 }).catch((error: unknown) => error);
  expect(failure).toBeInstanceOf(DeadlineError);
});

test("a part that came before the one in front of it goes again; a receiver that has lost what it had is told", async () => {
  const bytes = content(6 * MAX_CHUNK_BYTES);
  const receiver = new Receiver();
  let late: Part | undefined;
  // The second part is asked again beneath, and comes only when those behind it have been refused.
  const send = async (part: Part): Promise<void> => {
    if (part.offset === MAX_CHUNK_BYTES && late === undefined) {
      late = part;
      await Bun.sleep(5);
    }
    await receiver.send(part);
  };
  expect(await sendParts([bytes], { send })).toBe(bytes.length);
  expect(receiver.bytes.equals(bytes) && receiver.done).toBe(true);
  const forgetful = (part: Part): Promise<void> =>
    part.offset === 0
      ? Promise.resolve()
      : Promise.reject(new InvalidRequestError("offset: a gap", { field: "offset" }));
  const failure = await sendParts([bytes], { send: forgetful }).catch((error: unknown) => error);
  expect(failure).toMatchObject({ code: "invalid_request", field: "offset" });
});
