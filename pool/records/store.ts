// What the pool needs of durable records; `jetstream.ts` keeps them in NATS.
import type { SandmeshError } from "../../broker/contract/index.ts";
import type { SandboxRecord } from "../lifecycle/record.ts";
import type { RunRecord } from "../runs/run.ts";

export interface Loaded {
  sandboxes: SandboxRecord[];
  runs: RunRecord[];
  draining: boolean;
}

export interface RecordStore {
  /** All there is, at the start; fences every earlier pool off. */
  load(): Promise<Loaded>;
  /** Resolves when it is durable; tries again through an outage for as long as the store is open. Writes are sent in
   * the order of the calls. Rejects only when closed or fenced off (`failed` tells). */
  /** `keepMs`: it may be forgotten after that, unless it is put again; it costs no further write. */
  putSandbox(record: SandboxRecord, keepMs?: number): Promise<void>;
  putRun(run: RunRecord): Promise<void>;
  forgetSandbox(record: SandboxRecord): Promise<void>;
  forgetRun(tenant: string, run: string): Promise<void>;
  /** That acquires are refused until an operator says otherwise, whatever pool answers them. */
  putDraining(on: boolean): Promise<void>;
  /** The names of NATS's servers that keep the records, also of those that are away; none where there is one server alone. */
  readonly servers: readonly string[];
  /** Resolves when this pool may write no more: another one has taken over. */
  readonly failed: Promise<Error>;
  /** Resolves when no other pool had taken over by the time of the call; rejects as a write does. To be asked before
   * anything is done or said because something is *not* known: to a pool that was replaced, all that the next one made
   * is unknown. */
  current(): Promise<void>;
  /** Why nothing becomes durable now, though writes are taken and wait: what the disk says. It passes by itself. */
  readonly trouble: SandmeshError | undefined;
  /** Called when `trouble` begins. */
  onTrouble(handle: (error: SandmeshError) => void): void;
  /** Waits for what was put, at most `graceMs`. */
  close(graceMs: number): Promise<void>;
}
