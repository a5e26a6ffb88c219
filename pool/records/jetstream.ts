// The pool's records in NATS: `sandbox.<tenant>.<id>`, `run.<tenant>.<run>` and, while it drains, `pool.draining`, in one stream
// with one writer.
import type { Logger } from "pino";
import { type SandmeshError, toSandmeshError } from "../../broker/contract/index.ts";
import type { Link } from "../../broker/link/link.ts";
import { openRecords as open, type Records } from "../../broker/link/records.ts";
import { decodeRecord, encodeRecord, type SandboxRecord } from "../lifecycle/record.ts";
import { decodeRun, encodeRun, type RunRecord } from "../runs/run.ts";
import type { Loaded, RecordStore } from "./store.ts";

export interface JetStreamOptions {
  /** Copies in a cluster: 1, 3 or 5. */
  replicas?: number;
  /** How long the server may be away before this pool gives up and another start has to load anew; ms. */
  timeoutMs?: number;
}

const DEFAULT_TIMEOUT_MS = 120_000;
/** Half of what the stream's writer lets wait; what is above waits here, in order. */
const MAX_HANDED_ON = 32 * 1024;

/** Opens the records as their one writer; every earlier pool is fenced off. Throws what `Records` throws. */
export async function openRecords(
  link: Link,
  log: Logger,
  options: JetStreamOptions = {},
): Promise<RecordStore> {
  const { replicas = 1, timeoutMs = DEFAULT_TIMEOUT_MS } = options;
  const records = await open(link, { stream: "pool", subjectPrefix: "rec.v1.pool", replicas, timeoutMs });
  return new JetStreamStore(records, log, timeoutMs);
}

const sandboxKey = (tenant: string, sandbox: string): string => `sandbox.${tenant}.${sandbox}`;
const DRAINING_KEY = "pool.draining";
const runKey = (tenant: string, run: string): string => `run.${tenant}.${run}`;

class JetStreamStore implements RecordStore {
  readonly failed: Promise<Error>;
  readonly #records: Records;
  readonly #log: Logger;
  /** No record goes sooner: after an outage the writer looks for its last one. */
  readonly #leastKeepMs: number;
  #fail: (error: Error) => void = () => {};
  #handedOn = 0;
  #held: (() => void)[] = [];
  #idle: (() => void)[] = [];
  #closed = false;
  #lastCheck: Promise<void> = Promise.resolve();
  #nextCheck: Promise<void> | undefined;

  constructor(records: Records, log: Logger, timeoutMs: number) {
    this.#records = records;
    this.#log = log;
    this.#leastKeepMs = 2 * timeoutMs;
    this.failed = new Promise((resolve) => {
      this.#fail = resolve;
    });
    void records.poisoned.then((error) => {
      if (!this.#closed) this.#fail(error);
    });
  }

  get servers(): readonly string[] {
    return this.#records.servers;
  }

  get trouble(): SandmeshError | undefined {
    return this.#records.trouble;
  }

  onTrouble(handle: (error: SandmeshError) => void): void {
    this.#records.onTrouble(handle);
  }

  async load(): Promise<Loaded> {
    let draining = false;
    const sandboxes: SandboxRecord[] = [];
    const runs: RunRecord[] = [];
    for (const [key, bytes] of await this.#records.load()) {
      try {
        if (key.startsWith("sandbox.")) sandboxes.push(decodeRecord(bytes));
        else if (key.startsWith("run.")) runs.push(decodeRun(bytes));
        else if (key === DRAINING_KEY) draining = true;
      } catch (error) {
        // What it was about is then unknown to this pool, so that its sandbox is removed as an orphan.
        this.#log.error({ key, error: String(error) }, "a record cannot be read");
      }
    }
    return { sandboxes, runs, draining };
  }

  putSandbox(record: SandboxRecord, keepMs?: number): Promise<void> {
    const bytes = encodeRecord(record);
    const key = sandboxKey(record.tenant, record.sandbox);
    const options = keepMs === undefined ? {} : { ttlMs: Math.max(keepMs, this.#leastKeepMs) };
    return this.#do(() => this.#records.put(key, bytes, options));
  }

  putRun(run: RunRecord): Promise<void> {
    const bytes = encodeRun(run);
    return this.#do(() => this.#records.put(runKey(run.tenant, run.run), bytes));
  }

  forgetSandbox({ tenant, sandbox }: SandboxRecord): Promise<void> {
    return this.#do(() => this.#records.delete(sandboxKey(tenant, sandbox)));
  }

  forgetRun(tenant: string, run: string): Promise<void> {
    return this.#do(() => this.#records.delete(runKey(tenant, run)));
  }

  putDraining(on: boolean): Promise<void> {
    return this.#do(() =>
      on ? this.#records.put(DRAINING_KEY, new Uint8Array([1])) : this.#records.delete(DRAINING_KEY),
    );
  }

  /** One write at a time. That which is under way began before who asks now: the next one is for all who do so meanwhile, and
   * may be thousands, whose connections are back at once. */
  current(): Promise<void> {
    this.#nextCheck ??= this.#lastCheck.then(() => {
      const checking = this.#do(() => this.#records.verify());
      this.#nextCheck = undefined;
      this.#lastCheck = checking.catch(() => undefined);
      return checking;
    });
    return this.#nextCheck;
  }

  #do(write: () => Promise<void>): Promise<void> {
    return new Promise((resolve, reject) => {
      const begin = (): void => {
        this.#handedOn++;
        write().then(
          () => {
            this.#done();
            resolve();
          },
          (thrown: unknown) => {
            const error = toSandmeshError(thrown);
            if (!this.#closed) this.#fail(error);
            this.#done();
            reject(error);
          },
        );
      };
      if (this.#handedOn < MAX_HANDED_ON && this.#held.length === 0) begin();
      else this.#held.push(begin);
    });
  }

  #done(): void {
    this.#handedOn--;
    while (this.#held.length > 0 && this.#handedOn < MAX_HANDED_ON) {
      const room = MAX_HANDED_ON - this.#handedOn;
      for (const begin of this.#held.splice(0, room)) begin();
    }
    if (this.#handedOn === 0) for (const idle of this.#idle.splice(0)) idle();
  }

  async close(graceMs: number): Promise<void> {
    if (this.#handedOn > 0) {
      const idle = new Promise<void>((done) => this.#idle.push(done));
      await Promise.race([idle, Bun.sleep(graceMs)]);
    }
    this.#closed = true;
    await Promise.race([this.#records.close(), Bun.sleep(graceMs)]);
  }
}
