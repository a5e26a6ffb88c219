// What the server tells the pool of connections that come and go (`adv.v1.connect`, `adv.v1.disconnect`): the fastest
// sign that a sandbox's daemon is gone, and the only one that someone else uses its key.
import * as v from "valibot";
import { decode } from "../contract/index.ts";
import { isRole, type Role, tag } from "../credentials/index.ts";
import type { Connection } from "./connections.ts";

const Wire = v.looseObject({
  type: v.picklist([
    "io.nats.server.advisory.v1.client_connect",
    "io.nats.server.advisory.v1.client_disconnect",
  ]),
  timestamp: v.string(),
  client: v.looseObject({
    id: v.number(),
    start: v.string(),
    host: v.optional(v.string()),
    user: v.string(),
    tags: v.optional(v.array(v.string())),
  }),
  server: v.looseObject({ id: v.string() }),
  reason: v.optional(v.string()),
});

export interface Advisory {
  event: "connect" | "disconnect";
  role: Role;
  /** Undefined for the pool. */
  tenant: string | undefined;
  user: string | undefined;
  /** Of bootstraps and sandboxes. */
  sandbox: string | undefined;
  /** The connection's public nkey. */
  publicKey: string;
  connection: Connection;
  /** The client's address, as the server saw it. */
  address: string | undefined;
  /** The server's words, such as "Client Closed", "Stale Connection"; at a disconnect only. */
  reason: string | undefined;
  atMs: number;
}

/** Reads one; undefined where it is none, or about a client that sandmesh did not mint a credential for. */
export function parseAdvisory(data: Uint8Array): Advisory | undefined {
  let wire: unknown;
  try {
    wire = decode(data);
  } catch {
    return undefined;
  }
  const parsed = v.safeParse(Wire, wire);
  if (!parsed.success) return undefined;
  const { type, timestamp, client, server, reason } = parsed.output;
  const role = tag(client.tags, "role");
  if (!isRole(role)) return undefined;
  return {
    event: type.endsWith("_connect") ? "connect" : "disconnect",
    role,
    tenant: tag(client.tags, "tenant"),
    user: tag(client.tags, "user"),
    sandbox: tag(client.tags, "sandbox"),
    publicKey: client.user,
    connection: { server: server.id, number: client.id, startedAt: Date.parse(client.start) },
    address: client.host,
    reason,
    atMs: Date.parse(timestamp),
  };
}
