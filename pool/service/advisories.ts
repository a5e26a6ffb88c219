// What the server says of sandboxes' connections: who came and who went.
import type { Link, Subscription } from "../../broker/link/link.ts";
import {
  CONNECT_SUBJECT,
  type Connection,
  DISCONNECT_SUBJECT,
  parseAdvisory,
} from "../../broker/server/index.ts";

/** How a sandbox's tag stands in an advisory. Others (each boot's bootstrap comes and goes, too) are not worth the parse:
 * of the four advisories of a sandbox's life two are its own. */
const SANDBOX_ROLE = Buffer.from('"role:sandbox"');

/** What is malformed, or about other roles, is passed over. */
export function subscribeAdvisories(
  link: Link,
  handle: (publicKey: string, connection: Connection, type: "connected" | "disconnected") => void,
): Subscription[] {
  return [CONNECT_SUBJECT, DISCONNECT_SUBJECT].map((subject) =>
    link.subscribe(subject, ({ data }) => {
      if (Buffer.from(data.buffer, data.byteOffset, data.length).indexOf(SANDBOX_ROLE) < 0) return;
      const advisory = parseAdvisory(data);
      if (advisory?.role !== "sandbox") return;
      const type = advisory.event === "connect" ? "connected" : "disconnected";
      handle(advisory.publicKey, advisory.connection, type);
    }),
  );
}
