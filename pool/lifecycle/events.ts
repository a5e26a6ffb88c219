// What can happen to a sandbox, and what follows from it: data both.
import type { ErrorCode, WireError } from "../../broker/contract/index.ts";
import type { Connection } from "../../broker/server/connections.ts";
import type { End, ReplyTo } from "./record.ts";

/** What the provider has of a recorded sandbox: undefined where nothing, `unknown` where it could not be asked. */
export type FoundAgain = { uid: string; failed: string | undefined } | "unknown" | undefined;

export type SandboxEvent =
  /** The provider was called. */
  | { type: "create_begun" }
  | { type: "created"; uid: string }
  | { type: "create_failed"; error: WireError }
  /** It was refused, and nothing made of it; another provider is to make it. */
  | { type: "create_moved"; provider: string }
  | { type: "enrol"; generation: number; incarnation: string; publicKey: string; reply: ReplyTo }
  | { type: "ready"; generation: number; incarnation: string }
  /** The same acquire again: a client that lost its connection, or is impatient. */
  | { type: "attach"; digest: string; reply: ReplyTo }
  | { type: "confirm"; generation: number; reply: ReplyTo }
  /** A caller, the run's lease or the operator ends it. */
  | { type: "end"; reason: string; event: End["event"] }
  /** Some deadline of the record may have passed. */
  | { type: "deadline" }
  | { type: "provider_failed"; code: ErrorCode; reason: string; message: string }
  | { type: "provider_lost"; reason: string; message: string }
  | { type: "connected"; connection: Connection }
  | { type: "disconnected"; connection: Connection }
  /** What the servers have of it after they, or the pool, were away: all that are open, or none where all have answered. */
  | { type: "found"; open: readonly Connection[] }
  /** Nothing has been heard of this server for too long. */
  | { type: "server_gone"; server: string }
  /** The answer to `look`: `open` are the connections with those servers that have answered, undefined where none has;
   * `complete` where all have. `asked` are those that were known then. `heard`, where they give rise to doubt
   * (connections.ts): those on which the daemon has answered. */
  | {
      type: "seen";
      asked: readonly Connection[];
      open: readonly Connection[];
      heard: readonly Connection[];
      complete: boolean;
    }
  | { type: "seen"; asked: readonly Connection[]; open: undefined }
  | { type: "removed" }
  | { type: "remove_failed" }
  /** The server was away and is back. */
  | { type: "outage_over" }
  /** A pool started and found this record; `listed` is what the provider has of it. */
  | { type: "recovered"; listed: FoundAgain };

export type Answer =
  | { type: "grant" }
  | { type: "confirmed" }
  | { type: "enrolled"; publicKey: string }
  | { type: "error"; error: WireError };

export type Effect =
  /** Make the record durable; always first, and nothing behind it happens before it is. */
  | { type: "write" }
  | { type: "create" }
  | { type: "abort_create" }
  | { type: "remove" }
  /** Ask the servers which connections there are. */
  | { type: "look" }
  | { type: "control"; verb: "grant" | "renew" }
  | { type: "control"; verb: "release"; reason: string }
  | { type: "answer"; reply: ReplyTo; answer: Answer }
  | { type: "event"; what: "creating" | "granted" | "leased" | End["event"]; reason?: string }
  /** Nothing of it is left: whoever waits for that is told. */
  | { type: "gone" };

/** The times that the state machine goes by, ms. */
export interface Limits {
  confirmMs: number;
  disconnectGraceMs: number;
  secondConnectionGraceMs: number;
  muteConnectionMs: number;
  recoveryGraceMs: number;
  removeRetryMinMs: number;
  removeRetryMaxMs: number;
}
