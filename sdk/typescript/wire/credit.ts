// What a reader lets the sandbox know, without being answered: how far it is and may be sent to, and that it is gone.
import { type ChunkFrame, encode, sandboxSubject } from "../../../broker/contract/index.ts";
import type { Box } from "./box.ts";

export interface Credit {
  /** Of the question that is read. */
  token: string;
  stream: ChunkFrame["stream"];
  /** Offset up to which it has all, and up to which may be sent. */
  received: number;
  until: number;
  left?: true;
}

export function giveCredit({ caller: { link }, id }: Box, credit: Credit): void {
  link.publish(sandboxSubject(link.tenant, id, "credit"), encode({ version: 1, ...credit }));
}

/** What was on its way would wait for credit, and its command for that, for a minute. Never throws: where it does not
 * arrive, the sandbox finds out by itself. */
export function sayGone(box: Box, token: string): void {
  if (box.lifeline.error !== undefined) return;
  try {
    // A daemon of before does nothing with these offsets, and knows no more.
    giveCredit(box, { token, stream: "stdout", received: 0, until: 0, left: true });
  } catch {
    // The connection is closed, and the sandbox ends with its lease, or is read by nobody else.
  }
}
