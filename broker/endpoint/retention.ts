// How much of ended commands is kept.
export interface Retention {
  /** Ended commands whose output is held. */
  outputs: number;
  /** Ended commands whose id and outcome are known. */
  ids: number;
  /** Output of all commands together, running and ended. */
  bytes: number;
  /** Commands that run at once. */
  running: number;
}

export const RETENTION: Retention = { outputs: 1000, ids: 2000, bytes: 64 * 1024 * 1024, running: 4096 };
