// Time limits of one endpoint: all of them stand in one timer, and none runs while nothing waits.
import type { Deadline } from "../link/deadlines.ts";

export { Deadlines } from "../link/deadlines.ts";

/** Set by `deadlines.set(alarm, ms)`, taken back by `deadlines.clear(alarm)`. */
export class Alarm implements Deadline {
  dueMs = 0;
  list: Deadline["list"] = undefined;
  before: Deadline | undefined = undefined;
  after: Deadline | undefined = undefined;
  readonly expired: () => void;

  constructor(expired: () => void) {
    this.expired = expired;
  }
}
