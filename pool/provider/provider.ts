// The provider contract: what makes and ends sandboxes. Every provider passes pool/provider/contract.test-suite.ts.
// Names are the caller's and never used again, so that every call may be repeated.
import type { Bootstrap, SandboxSpec } from "../../broker/contract/index.ts";

export interface CreateRequest {
  /** The sandbox's id; also the name of what the provider makes. */
  sandbox: string;
  tenant: string;
  run: string;
  spec: SandboxSpec;
  /** Handed to the daemon as it is. */
  bootstrap: Bootstrap;
  /** The provider's own backstop: what it made ends itself by then, whatever becomes of the pool. */
  maxLifeMs: number;
}

export interface Created {
  /** The provider's own identity for it (a pod's UID, a pid and its start time), for preconditions. */
  uid: string;
}

/** `failed`: it is there, as an object, but will not run (again). `unfinished`: whoever was making it ended before anything
 * of it ran; `create` makes it anew, under the same name. */
export const PHASES = ["starting", "running", "failed", "unfinished"] as const;

export interface Listed {
  sandbox: string;
  tenant: string;
  uid: string;
  phase: (typeof PHASES)[number];
  reason?: string;
}

export type ProviderEvent =
  | { type: "running"; sandbox: string; uid: string }
  /** It will never become ready: `reason` as in BootFailedError, or image_error / unsupported by their code. */
  | {
      type: "failed";
      sandbox: string;
      uid: string;
      code: "boot_failed" | "image_error" | "unsupported" | "quota_exceeded";
      reason: string;
      message: string;
    }
  /** It was there and is no more, or is ending, and we did not ask for it. */
  | {
      type: "lost";
      sandbox: string;
      uid: string;
      reason: "daemon_died" | "node_lost" | "evicted" | "oom" | "deleted";
      message: string;
    };

/** How many one `removeMany` is given at most: as many as Kubernetes takes in one request, whose names make an address, which
 * stays below 8 KiB. */
export const MAX_REMOVED_TOGETHER = 100;

export interface Removed {
  sandbox: string;
  /** Only if it still has that identity. */
  uid: string | undefined;
}

export interface Provider {
  readonly name: string;
  /** Sandboxes that it removes at once, where these are fewer than the pool's `maxRemoving`. */
  readonly maxRemoving?: number;
  /** Requests to the outside system behind it since the start, where it has one: sent, of these answered with "not
   * now", and without any answer. */
  readonly requests?: Readonly<Record<"sent" | "throttled" | "failed", number>>;
  /** Throws UnsupportedError or ImageError (naming the field) where it can tell before creating anything. */
  validate(spec: SandboxSpec): Promise<void>;
  /** Idempotent by name: creating what is there answers it. Throws SandmeshErrors: ImageError, UnsupportedError,
   * QuotaExceededError, PermissionDeniedError, ProviderError; of these quota and permission say that nothing was made, and
   * another provider may be asked. After a throw or a time-out the pool still calls `remove`. */
  create(request: CreateRequest, signal: AbortSignal): Promise<Created>;
  /** Ends it and verifies it gone: processes, mounts, files, objects. Removing what is not there succeeds. With
   * `uid`, only if it still has that identity. */
  remove(sandbox: string, uid: string | undefined, signal: AbortSignal): Promise<void>;
  /** Removes all of these, where the provider can do that in fewer calls; the default is one by one. Answers, and never
   * throws, for each in their order, as `remove` would: as soon as that one is verified gone, or has failed. */
  removeMany?(sandboxes: readonly Removed[], signal: AbortSignal): readonly Promise<void>[];
  /** All that there is, of this mesh, also what the pool does not know. */
  list(signal: AbortSignal): Promise<Listed[]>;
  /** Tells what happens, until the returned function is called. Events may be late, doubled or missing: `list` is
   * the truth, they are the haste. */
  watch(handle: (event: ProviderEvent) => void): () => void;
  /** What is not isolated, in words; empty where all is. */
  notIsolated(spec: SandboxSpec): string[];
  /** What it cannot hold of `spec`, in words, for whom the sandbox is granted to; left out where it holds all. */
  warnings?(spec: SandboxSpec): string[];
  /** Leaves the sandboxes as they are (the pool is restarting) and lets go of watches and timers. */
  close(): Promise<void>;
}
