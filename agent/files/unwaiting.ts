// How the daemon opens what stands at a user's path.
import { constants } from "node:fs";

/** Opening a fifo that nobody writes to, or a file under another's lease, would hold a thread of the daemon; and a
 * terminal must not become the daemon's own, which would be hung up with it. */
export const UNWAITING = constants.O_NONBLOCK | constants.O_NOCTTY;
