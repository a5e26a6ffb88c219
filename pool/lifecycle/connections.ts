// What the server's advisories say of a sandbox's own connection.
import type { Step } from "./end.ts";
import { endWith, stay } from "./end.ts";
import type { Limits } from "./events.ts";
import { isEnding, type SandboxRecord } from "./record.ts";

/** Bound on remembered connections of one key; what opens more is no daemon. */
const MAX_CONNECTIONS = 8;

/** A second live connection on one key is someone else with the key, unless the first one was already dying: a
 * daemon that reconnects after a cut may be back before the server has noticed the cut. */
export function stepConnected(record: SandboxRecord, connection: string, now: number, limits: Limits): Step {
  if (isEnding(record.state) || record.state === "gone" || record.connections.includes(connection))
    return stay(record);
  const connections = [...record.connections, connection];
  if (connections.length > MAX_CONNECTIONS) return endWith(record, { reason: "tampered", event: "lost" });
  const tamperAt =
    connections.length > 1 ? (record.tamperAt ?? now + limits.secondConnectionGraceMs) : undefined;
  return { record: { ...record, connections, tamperAt, lostAt: undefined }, effects: [] };
}

export function stepDisconnected(
  record: SandboxRecord,
  connection: string,
  now: number,
  limits: Limits,
): Step {
  if (isEnding(record.state) || record.state === "gone") return stay(record);
  const at = record.connections.indexOf(connection);
  // The newer one left while the older stays: that was no reconnect.
  if (at > 0 && record.tamperAt !== undefined) return endWith(record, { reason: "tampered", event: "lost" });
  const connections = record.connections.filter((other) => other !== connection);
  if (connections.length > 0) {
    const tamperAt = connections.length > 1 ? record.tamperAt : undefined;
    return { record: { ...record, connections, tamperAt }, effects: [] };
  }
  // Also where this pool had not seen it connect: after a restart it knows no connections.
  const lostAt = record.lostAt ?? now + limits.disconnectGraceMs;
  return { record: { ...record, connections, tamperAt: undefined, lostAt }, effects: [] };
}
