// Which connections there are: asked of the servers themselves, since what they tell by themselves (advisory.ts) is in order
// for each server only, and one that is killed tells of no end.
import * as v from "valibot";
import { decode } from "../contract/index.ts";

export interface Connection {
  /** The server's id, which is another after each start. */
  readonly server: string;
  /** The same at its connect and its disconnect, growing, and used once by that server. */
  readonly number: number;
  /** By the server's clock, ms since the epoch. */
  readonly startedAt: number;
}

export const isSame = (a: Connection, b: Connection): boolean =>
  a.server === b.server && a.number === b.number;

const byAge = (a: Connection, b: Connection): number =>
  a.server === b.server ? a.number - b.number : a.startedAt - b.startedAt;

/** Whether `a` began before `b`. */
export const isOlder = (a: Connection, b: Connection): boolean => byAge(a, b) < 0;

export const oldestFirst = <C extends Connection>(connections: readonly C[]): C[] =>
  connections.toSorted(byAge);

/** One that is open. */
export interface OpenConnection extends Connection {
  /** The key that it is on, where that was asked for. */
  readonly user?: string | undefined;
  /** How many messages have come from the client. */
  readonly said: number;
}

/** To be sent to CONNECTIONS_SUBJECT: who is connected with this key. */
export const connectionsOf = (publicKey: string): Uint8Array =>
  Buffer.from(JSON.stringify({ user: publicKey }));

/** To be sent to CONNECTIONS_SUBJECT: who is connected at all, and with which key; lowest numbers first. */
export const pageOfConnections = (offset: number, limit: number): Uint8Array =>
  Buffer.from(JSON.stringify({ auth: true, sort: "cid", offset, limit }));

export interface ServerIdentity {
  /** Another one after each start. */
  readonly id: string;
  /** As configured, and the same after a start; the id where it is not. */
  readonly name: string;
  /** Whether it is one of several. */
  readonly clustered: boolean;
}

const Wire = v.object({
  server: v.object({ id: v.string(), name: v.string(), cluster: v.optional(v.string()) }),
  data: v.object({
    connections: v.array(
      v.object({
        cid: v.number(),
        start: v.string(),
        in_msgs: v.number(),
        authorized_user: v.optional(v.string()),
      }),
    ),
  }),
});

/** Reads one server's answer; undefined where it is none. */
export function parseConnections(
  data: Uint8Array,
): { server: ServerIdentity; open: readonly OpenConnection[] } | undefined {
  try {
    const parsed = v.safeParse(Wire, decode(data));
    if (!parsed.success) return undefined;
    const { id: server, name, cluster } = parsed.output.server;
    const open = parsed.output.data.connections.map(({ cid, start, in_msgs, authorized_user }) => ({
      server,
      number: cid,
      startedAt: Date.parse(start),
      said: in_msgs,
      user: authorized_user,
    }));
    return { server: { id: server, name, clustered: cluster !== undefined }, open };
  } catch {
    return undefined;
  }
}
