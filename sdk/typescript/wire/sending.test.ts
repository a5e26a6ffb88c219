import { expect, spyOn, test } from "bun:test";
import {
  ConnectionError,
  DeadlineError,
  FileError,
  InvalidRequestError,
  MAX_CHUNK_BYTES,
  NotFoundError,
} from "../../../broker/contract/index.ts";
import type { Part } from "./parts.ts";
import { sendParts } from "./sending.ts";

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
    // The first part begins it.
    if (part.offset > 0 && this.bytes.length === 0)
      throw new NotFoundError("no transfer is open", { field: "transfer" });
    if (part.offset > this.bytes.length) throw new InvalidRequestError("offset: a gap", { field: "offset" });
    const fresh = part.data.subarray(this.bytes.length - part.offset);
    this.bytes = Buffer.concat([this.bytes, fresh]);
    this.done ||= part.last;
  }
}

const content = (length: number): Buffer => Buffer.from(Uint8Array.from({ length }, (_, i) => (i * 31) >> 3));

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

const GIVEN_UP = new NotFoundError("no transfer is open", { field: "transfer" });
const PIECE = new Uint8Array(MAX_CHUNK_BYTES);

test("where the first part is lost and those behind it come, which are refused then, all comes", async () => {
  const receiver = new Receiver();
  receiver.fault = (sent) => (sent === 1 ? { lose: true, error: new ConnectionError("cut") } : {});
  const bytes = content(20 * MAX_CHUNK_BYTES + 5);
  async function* source(): AsyncGenerator<Uint8Array> {
    for (let at = 0; at < bytes.length; at += 100_000) {
      yield bytes.subarray(at, at + 100_000);
      await new Promise((go) => setImmediate(go));
    }
  }
  expect(await sendParts(source(), { send: receiver.send })).toBe(bytes.length);
  expect(receiver.bytes.equals(bytes) && receiver.done).toBe(true);
});

test("what is lost goes again while the source gives nothing", async () => {
  const receiver = new Receiver();
  receiver.fault = (sent) => (sent === 1 ? { lose: true, error: new ConnectionError("cut") } : {});
  const arrived = async (length: number): Promise<void> => {
    while (receiver.bytes.length < length) await new Promise((go) => setImmediate(go));
  };
  async function* source(): AsyncGenerator<Uint8Array> {
    yield PIECE;
    yield PIECE;
    yield PIECE.subarray(0, 1);
    await arrived(2 * PIECE.length);
    yield PIECE;
  }
  expect(await sendParts(source(), { send: receiver.send })).toBe(3 * PIECE.length + 1);
  expect(receiver.done).toBe(true);
});

test("a transfer that was given up after a part was accepted is told, also while the source gives nothing", async () => {
  let accepted = 0;
  async function* source(): AsyncGenerator<Uint8Array> {
    yield PIECE;
    yield PIECE;
    while (accepted === 0) await new Promise((go) => setImmediate(go));
    yield PIECE;
    await new Promise(() => undefined);
  }
  const send = async (part: Part): Promise<void> => {
    if (part.offset > 0) throw GIVEN_UP;
    accepted++;
  };
  const failure = await sendParts(source(), { send }).catch((error: unknown) => error);
  expect(failure).toBe(GIVEN_UP);
  expect(accepted).toBe(1);
});

test("what is refused when it goes again ends the sending at once, whatever the source is waiting for", async () => {
  const full = new FileError("full", { reason: "ENOSPC" });
  let sent = 0;
  const send = async (): Promise<void> => {
    throw ++sent <= 2 ? new ConnectionError("cut") : full;
  };
  async function* source(): AsyncGenerator<Uint8Array> {
    yield PIECE;
    yield PIECE;
    yield PIECE;
    await new Promise(() => undefined);
  }
  expect(await sendParts(source(), { send }).catch((error: unknown) => error)).toBe(full);
});

test("a refusal is told also where the parts before it, which were lost, come when they go again", async () => {
  const full = new FileError("full", { reason: "ENOSPC" });
  let refused = false;
  const lost = new Set<number>([0]);
  const send = async ({ offset }: Part): Promise<void> => {
    if (lost.delete(offset)) throw new ConnectionError("cut");
    if (offset !== MAX_CHUNK_BYTES || refused) return;
    refused = true;
    throw full;
  };
  const failure = await sendParts([content(9 * MAX_CHUNK_BYTES)], { send }).catch((error: unknown) => error);
  expect(failure).toBe(full);
});
