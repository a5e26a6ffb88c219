// What follows from a sandbox's own connections. The servers' advisories are in order for each server only, and a server
// that is killed tells of no end: they say when to ask, and only what servers answer is judged by.

import { BootFailedError } from "../../broker/contract/index.ts";
import { type Connection, isOlder, isSame, oldestFirst } from "../../broker/server/connections.ts";
import { endWith, type Step, stay } from "./end.ts";
import type { Limits, SandboxEvent } from "./events.ts";
import { isEnding, isPending, NO_DOUBT, type SandboxRecord } from "./record.ts";

/** Bound on remembered connections of one key; what opens more is no daemon. */
const MAX_CONNECTIONS = 8;
/** What still boots does so where servers are at their busiest, and has nothing to lose by waiting. */
const BOOT_GRACES = 6;

type Seen = Extract<SandboxEvent, { type: "seen" }>;

const isOver = ({ state }: SandboxRecord): boolean => isEnding(state) || state === "gone";
const tampered = (record: SandboxRecord): Step => endWith(record, { reason: "tampered", event: "lost" });

/** A second live connection on one key is someone else with the key, unless the first one was already dying: a
 * daemon that reconnects after a cut may be back before the server has noticed the cut. */
export function stepConnected(
  record: SandboxRecord,
  connection: Connection,
  now: number,
  limits: Limits,
): Step {
  return isOver(record) ? stay(record) : join(record, [connection], now, limits);
}

/** After an outage, or a start: nobody has told who came and went meanwhile. What was told since goes before: it has said
 * when to ask, and may be younger than this. */
export function stepFound(
  record: SandboxRecord,
  open: readonly Connection[],
  now: number,
  limits: Limits,
): Step {
  if (isOver(record) || record.left !== undefined) return stay(record);
  if (open.length > 0) return join(record, open, now, limits);
  // One that boots may not have connected yet; it has its deadline.
  if (isPending(record.state) || record.connections.length > 0 || record.lookAt !== undefined) {
    return stay(record);
  }
  return { record: { ...record, lookAt: lostAt(record, now, limits) }, effects: [] };
}

function join(record: SandboxRecord, more: readonly Connection[], now: number, limits: Limits): Step {
  const others = more.filter((each) => !record.connections.some((known) => isSame(known, each)));
  if (others.length === 0) return stay(record);
  const connections = oldestFirst([...record.connections, ...others]);
  if (connections.length > MAX_CONNECTIONS) return tampered(record);
  const doubtful = isDoubtful(record, connections);
  const soon = now + limits.secondConnectionGraceMs;
  // Of one that was away the deadline is another's: it would be looked at for being lost.
  const before = record.connections.length === 0 ? undefined : record.lookAt;
  const lookAt = doubtful ? Math.min(soon, before ?? soon) : undefined;
  return { record: { ...withoutDoubt(record, doubtful), connections, lookAt }, effects: [] };
}

export function stepDisconnected(
  record: SandboxRecord,
  connection: Connection,
  now: number,
  limits: Limits,
): Step {
  if (isOver(record)) return stay(record);
  const connections = record.connections.filter((other) => !isSame(other, connection));
  const left = record.left === undefined || isOlder(record.left, connection) ? connection : record.left;
  if (connections.length === 0) {
    // Also where this pool had not seen it connect: after a restart it knows no connections.
    const away = record.connections.length === 0 ? record.lookAt : undefined;
    return {
      record: { ...record, connections, left, lookAt: away ?? lostAt(record, now, limits) },
      effects: [],
    };
  }
  // It began after one that is still there had, and has ended: no reconnect, if that one is still there.
  if (connections.some((other) => isOlder(other, connection))) {
    return { record: { ...record, connections, left, lookAt: now }, effects: [] };
  }
  // An answer that is on its way is of the connections before.
  const doubtful = isDoubtful(record, connections);
  const lookAt = doubtful ? (record.lookAt ?? now) : undefined;
  return { record: { ...withoutDoubt(record, doubtful), connections, lookAt }, effects: [] };
}

const withoutDoubt = (record: SandboxRecord, doubtful: boolean): SandboxRecord =>
  doubtful ? record : { ...record, left: undefined, doubtSince: undefined };

function lostAt(record: SandboxRecord, now: number, limits: Limits): number {
  return now + limits.disconnectGraceMs * (isPending(record.state) ? BOOT_GRACES : 1);
}

/** A server has been silent for so long that its connections are no more. */
export function stepServerGone(record: SandboxRecord, server: string, now: number, limits: Limits): Step {
  if (isOver(record) || !record.connections.some((each) => each.server === server)) return stay(record);
  const connections = record.connections.filter((each) => each.server !== server);
  const doubtful = isDoubtful(record, connections);
  const lookAt = connections.length === 0 ? lostAt(record, now, limits) : doubtful ? now : undefined;
  return { record: { ...withoutDoubt(record, doubtful), connections, lookAt }, effects: [] };
}

/** What the servers answered. Where others are known by now than were asked about, the answer is old, and what came
 * meanwhile has said when to ask again. */
export function stepSeen(record: SandboxRecord, seen: Seen, now: number, limits: Limits): Step {
  const { asked, open } = seen;
  if (isOver(record) || record.connections !== asked) return stay(record);
  // Nobody may ask (an account's JWT of before), or nobody can answer: what was told has to do.
  if (open === undefined)
    return isDoubtful(record, asked) ? tampered(record) : settle(record, asked, now, limits);
  const connections = oldestFirst(open);
  const [oldest] = connections;
  if (oldest !== undefined && isDoubtful(record, connections)) {
    const alive = seen.heard.some((each) => isSame(each, oldest));
    const since = record.doubtSince ?? now;
    if (alive || seen.heard.length > 1 || since + limits.muteConnectionMs <= now) return tampered(record);
    // It may have lost the older one to a cut of the network, which its server does not know yet.
    const lookAt = now + limits.secondConnectionGraceMs;
    return { record: { ...record, doubtSince: since, lookAt }, effects: [] };
  }
  if (!seen.complete) return { record, effects: [{ type: "look" }] };
  return settle(record, connections, now, limits);
}

/** Whether these, oldest first, can be those of one daemon, which has one at a time. */
export function isDoubtful(
  { left }: Pick<SandboxRecord, "left">,
  [oldest, second]: readonly Connection[],
): boolean {
  return second !== undefined || (oldest !== undefined && left !== undefined && isOlder(oldest, left));
}

function settle(
  record: SandboxRecord,
  connections: readonly Connection[],
  now: number,
  limits: Limits,
): Step {
  if (connections.length > 0) {
    return { record: { ...record, connections, ...NO_DOUBT }, effects: [] };
  }
  // All have ended since: whoever was connected has its time to come back.
  if (record.connections.length > 0) {
    return { record: { ...record, connections, lookAt: lostAt(record, now, limits) }, effects: [] };
  }
  if (!isPending(record.state)) return endWith(record, { reason: "disconnected", event: "lost" });
  const { sandbox } = record;
  const error = new BootFailedError("its daemon connected and went away", { sandbox, reason: "exited" });
  return endWith(record, { reason: "exited", event: "failed", error: error.toWire() });
}
