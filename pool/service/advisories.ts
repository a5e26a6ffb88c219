// What the server says of sandboxes' connections: who came and who went.
import type { Link, Subscription } from "../../broker/link/link.ts";
import { CONNECT_SUBJECT, DISCONNECT_SUBJECT, parseAdvisory } from "../../broker/server/index.ts";

/** `connection` names one connection, the same when it comes and when it goes. What is malformed, or about other
 * roles, is passed over. */
export function subscribeAdvisories(
  link: Link,
  handle: (publicKey: string, connection: string, type: "connected" | "disconnected") => void,
): Subscription[] {
  return [CONNECT_SUBJECT, DISCONNECT_SUBJECT].map((subject) =>
    link.subscribe(subject, ({ data }) => {
      const advisory = parseAdvisory(data);
      if (advisory?.role !== "sandbox") return;
      const type = advisory.event === "connect" ? "connected" : "disconnected";
      handle(advisory.publicKey, advisory.connection, type);
    }),
  );
}
