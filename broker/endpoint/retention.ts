// How much of ended commands is kept.
export interface Retention {
  /** Ended commands whose output is held. */
  outputs: number;
  /** Ended commands whose id and outcome are known. */
  ids: number;
  /** Ids of ended commands of which nothing else is known: at least so many, at most twice as many. */
  forgotten: number;
  /** Output of all commands together, running and ended. */
  bytes: number;
  /** Commands that run at once. */
  running: number;
}

export const RETENTION: Retention = {
  outputs: 1000,
  ids: 2000,
  forgotten: 32_768,
  bytes: 64 * 1024 * 1024,
  running: 4096,
};
