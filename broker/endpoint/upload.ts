// `write` and `unpack`: parts by transfer and offset, processed in the order in which they arrive, each answered.
import {
  BusyError,
  ConflictError,
  InvalidRequestError,
  NotFoundError,
  type SandmeshError,
} from "../contract/index.ts";
import { Alarm } from "./alarm.ts";
import { type Context, errorOf } from "./context.ts";
import type { ByteSink } from "./executor.ts";

/** Open transfers in one sandbox; each holds a file open. */
const MAX_TRANSFERS = 64;
/** Parts that wait for the disk, of all transfers. */
const MAX_QUEUED_BYTES = 64 * 1024 * 1024;
/** A transfer that nobody touched for this long is aborted, and forgotten. */
export const IDLE_MS = 60_000;

export interface Part {
  transfer: string;
  /** `write` or `unpack`, and the path with its root: what a transfer id stands for. */
  target: string;
  offset: number;
  data: Uint8Array;
  last: boolean;
  open(): Promise<ByteSink>;
}

export interface Received {
  received: number;
  done: boolean;
}

export class Uploads {
  readonly #context: Context;
  readonly #transfers = new Map<string, Transfer>();
  #queuedBytes = 0;

  constructor(context: Context) {
    this.#context = context;
  }

  /** Takes one part. Throws BusyError, ConflictError (the transfer id stands for another path), NotFoundError (it was
   * aborted, or its first part is missing), InvalidRequestError (a gap), and what the sink throws. */
  async part(part: Part): Promise<Received> {
    const transfer = this.#transfers.get(part.transfer) ?? this.#begin(part);
    if (transfer.target !== part.target) {
      throw new ConflictError(`the transfer ${part.transfer} is of another path`, { field: "transfer" });
    }
    const { length } = part.data;
    if (this.#queuedBytes + length > MAX_QUEUED_BYTES) {
      throw new BusyError(`${MAX_QUEUED_BYTES} bytes wait to be written already`);
    }
    this.#queuedBytes += length;
    this.#context.deadlines.clear(transfer.idle);
    transfer.waiting++;
    const turn = transfer.turn.then(() => transfer.take(part));
    transfer.turn = turn.then(
      () => {},
      () => {},
    );
    try {
      return await turn;
    } finally {
      this.#queuedBytes -= length;
      if (--transfer.waiting === 0 && this.#transfers.get(part.transfer) === transfer) {
        this.#context.deadlines.set(transfer.idle, IDLE_MS);
      }
    }
  }

  #begin(part: Part): Transfer {
    if (part.offset !== 0) {
      throw new NotFoundError(`no transfer ${part.transfer} is open; it begins at offset 0`, {
        field: "transfer",
      });
    }
    this.#makeRoom();
    const idle = new Alarm(() => void this.#drop(part.transfer));
    const transfer = new Transfer(part, idle);
    this.#transfers.set(part.transfer, transfer);
    return transfer;
  }

  /** Finished ones are kept for those who ask again, but not at the cost of new ones. */
  #makeRoom(): void {
    if (this.#transfers.size < MAX_TRANSFERS) return;
    for (const [id, transfer] of this.#transfers) {
      if (!transfer.settled || transfer.waiting > 0) continue;
      this.#transfers.delete(id);
      this.#context.deadlines.clear(transfer.idle);
      return;
    }
    throw new BusyError(`${MAX_TRANSFERS} transfers are open already`);
  }

  async #drop(id: string): Promise<boolean> {
    const transfer = this.#transfers.get(id);
    if (transfer === undefined) return false;
    this.#transfers.delete(id);
    this.#context.deadlines.clear(transfer.idle);
    try {
      await transfer.abort();
    } catch (thrown) {
      const error = errorOf(thrown, "abort");
      this.#context.log.warn(
        { sandbox: this.#context.sandbox, error: error.message },
        "a transfer's abort failed",
      );
    }
    return true;
  }

  /** Throws NotFoundError where there is none. */
  async abort(id: string): Promise<void> {
    if (!(await this.#drop(id))) throw new NotFoundError(`no transfer ${id}`, { field: "transfer" });
  }

  async close(): Promise<void> {
    await Promise.all([...this.#transfers.keys()].map((id) => this.#drop(id)));
  }
}

class Transfer {
  readonly target: string;
  readonly idle: Alarm;
  turn: Promise<void> = Promise.resolve();
  waiting = 0;
  readonly #open: () => Promise<ByteSink>;
  #sink: ByteSink | undefined;
  #received = 0;
  #done = false;
  #failure: SandmeshError | undefined;

  constructor({ target, open }: Part, idle: Alarm) {
    this.target = target;
    this.idle = idle;
    this.#open = open;
  }

  get settled(): boolean {
    return this.#done || this.#failure !== undefined;
  }

  async take({ offset, data, last }: Part): Promise<Received> {
    // The parts that were under way behind one that failed have the same answer, not a gap.
    if (this.#failure !== undefined) throw this.#failure;
    if (offset > this.#received) {
      throw new InvalidRequestError(`offset: ${offset} leaves a gap; ${this.#received} bytes were received`, {
        field: "offset",
      });
    }
    if (this.#done) return { received: this.#received, done: true };
    try {
      this.#sink ??= await this.#open();
      const fresh = data.subarray(this.#received - offset);
      if (fresh.length > 0) await this.#sink.write(fresh);
      this.#received += fresh.length;
      if (last && offset + data.length === this.#received) {
        await this.#sink.finish();
        this.#done = true;
      }
    } catch (thrown) {
      await this.#fail(thrown);
    }
    return { received: this.#received, done: this.#done };
  }

  async #fail(thrown: unknown): Promise<never> {
    this.#failure = errorOf(thrown, "a transfer");
    const sink = this.#sink;
    this.#sink = undefined;
    // The first failure is the one to tell; an abort that fails too adds nothing to it.
    await sink?.abort().catch(() => {});
    throw this.#failure;
  }

  /** After what is under way. */
  async abort(): Promise<void> {
    await this.turn;
    if (this.settled) return;
    this.#failure = new NotFoundError("the transfer was aborted", { field: "transfer" });
    await this.#sink?.abort();
  }
}

/** One part that is the whole: no transfer to keep. */
export async function writeWhole(data: Uint8Array, open: () => Promise<ByteSink>): Promise<Received> {
  const sink = await open();
  try {
    if (data.length > 0) await sink.write(data);
    await sink.finish();
  } catch (error) {
    await sink.abort().catch(() => {});
    throw error;
  }
  return { received: data.length, done: true };
}
