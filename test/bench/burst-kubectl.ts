// kubectl, which test/cluster/enter puts on the PATH.
import { output } from "../cluster/output.ts";

/** Its output. Throws with what it said. */
export const kubectl = (...argv: string[]): Promise<string> =>
  output(["kubectl", "--request-timeout=60s", ...argv]);
