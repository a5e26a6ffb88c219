// For tests: records in memory, with the failures of real ones on demand. Several pools may use one after another.
import type { SandmeshError } from "../../broker/contract/index.ts";
import { decodeRecord, encodeRecord, type SandboxRecord } from "../lifecycle/record.ts";
import type { Loaded, RecordStore } from "../records/store.ts";
import { decodeRun, encodeRun, type RunRecord } from "../runs/run.ts";

export class MemoryRecords {
  readonly sandboxes = new Map<string, Uint8Array>();
  readonly runs = new Map<string, Uint8Array>();
  draining = false;
  #epoch = 0;

  /** Fences the one before off. */
  open(): MemoryStore {
    return new MemoryStore(this, ++this.#epoch);
  }

  readonly #troubled: ((error: SandmeshError) => void)[] = [];

  /** Says that nothing becomes durable, as a full disk does. */
  trouble(error: SandmeshError): void {
    for (const handle of this.#troubled) handle(error);
  }

  onTrouble(handle: (error: SandmeshError) => void): void {
    this.#troubled.push(handle);
  }

  isCurrent(epoch: number): boolean {
    return epoch === this.#epoch;
  }

  states(): string[] {
    return [...this.sandboxes.values()].map((bytes) => decodeRecord(bytes).state);
  }
}

class MemoryStore implements RecordStore {
  readonly failed: Promise<Error>;
  #fail: (error: Error) => void = () => {};
  readonly #records: MemoryRecords;
  readonly #epoch: number;
  readonly servers: readonly string[] = [];
  writes = 0;

  constructor(records: MemoryRecords, epoch: number) {
    this.#records = records;
    this.#epoch = epoch;
    this.failed = new Promise((resolve) => {
      this.#fail = resolve;
    });
  }

  async load(): Promise<Loaded> {
    return {
      sandboxes: [...this.#records.sandboxes.values()].map(decodeRecord),
      runs: [...this.#records.runs.values()].map(decodeRun),
      draining: this.#records.draining,
    };
  }

  async #write(change: () => void): Promise<void> {
    await new Promise((stored) => setImmediate(stored));
    if (!this.#records.isCurrent(this.#epoch)) {
      const error = new Error("another pool has taken over");
      this.#fail(error);
      throw error;
    }
    this.writes++;
    change();
  }

  putSandbox(record: SandboxRecord, keepMs?: number): Promise<void> {
    const bytes = encodeRecord(record);
    const { sandboxes } = this.#records;
    const forget = (): void => {
      if (sandboxes.get(record.sandbox) === bytes) sandboxes.delete(record.sandbox);
    };
    return this.#write(() => {
      sandboxes.set(record.sandbox, bytes);
      if (keepMs !== undefined) setTimeout(forget, keepMs).unref();
    });
  }

  putRun(run: RunRecord): Promise<void> {
    const bytes = encodeRun(run);
    return this.#write(() => this.#records.runs.set(`${run.tenant}/${run.run}`, bytes));
  }

  forgetSandbox(record: SandboxRecord): Promise<void> {
    return this.#write(() => this.#records.sandboxes.delete(record.sandbox));
  }

  forgetRun(tenant: string, run: string): Promise<void> {
    return this.#write(() => this.#records.runs.delete(`${tenant}/${run}`));
  }

  putDraining(on: boolean): Promise<void> {
    return this.#write(() => {
      this.#records.draining = on;
    });
  }

  current(): Promise<void> {
    return this.#write(() => {});
  }

  readonly trouble = undefined;

  onTrouble(handle: (error: SandmeshError) => void): void {
    this.#records.onTrouble(handle);
  }

  async close(): Promise<void> {}
}
