// JSON messages over a socket, one a line: what the provider and a host of virtual sandboxes speak.
import type { Socket } from "node:net";
import * as v from "valibot";
import { Bootstrap, TooLargeError } from "../../../broker/contract/index.ts";
import { PHASES } from "../provider.ts";

/** A bootstrap is some 3 KB; whatever sends more than this is none of ours. */
const MAX_LINE_CHARACTERS = 4 * 1024 * 1024;

export const HostRequest = v.object({
  n: v.number(),
  op: v.picklist(["create", "remove", "list", "crash", "abort"]),
  sandbox: v.optional(v.string()),
  uid: v.optional(v.string()),
  create: v.optional(
    v.object({
      sandbox: v.string(),
      tenant: v.string(),
      bootstrap: Bootstrap,
      maxLifeMs: v.number(),
    }),
  ),
});
export type HostRequest = v.InferOutput<typeof HostRequest>;

const HostListed = v.object({
  sandbox: v.string(),
  tenant: v.string(),
  uid: v.string(),
  phase: v.picklist(PHASES),
  reason: v.exactOptional(v.string()),
});

const EventBase = { sandbox: v.string(), uid: v.string() };
const HostEvent = v.variant("type", [
  v.object({ type: v.literal("running"), ...EventBase }),
  v.object({
    type: v.literal("failed"),
    ...EventBase,
    code: v.picklist(["boot_failed", "image_error", "unsupported", "quota_exceeded"]),
    reason: v.string(),
    message: v.string(),
  }),
  v.object({
    type: v.literal("lost"),
    ...EventBase,
    reason: v.picklist(["daemon_died", "node_lost", "evicted", "oom", "deleted"]),
    message: v.string(),
  }),
]);

/** The answer to request `n`, or what happened. */
export const HostWord = v.object({
  n: v.optional(v.number()),
  error: v.optional(
    v.looseObject({
      code: v.string(),
      message: v.string(),
      retryable: v.boolean(),
      reason: v.exactOptional(v.string()),
    }),
  ),
  uid: v.optional(v.string()),
  list: v.optional(v.array(HostListed)),
  event: v.optional(HostEvent),
});
export type HostWord = v.InferOutput<typeof HostWord>;

/** Lines of this turn of the event loop: a burst of thousands is then some writes, and not one each. */
const unsent = new WeakMap<Socket, string>();

export function sendLine(socket: Socket, message: HostRequest | HostWord): void {
  const before = unsent.get(socket);
  unsent.set(socket, `${before ?? ""}${JSON.stringify(message)}\n`);
  if (before !== undefined) return;
  setImmediate(() => {
    const lines = unsent.get(socket) ?? "";
    unsent.delete(socket);
    if (!socket.destroyed) socket.write(lines);
  });
}

/** Calls `handle` for each line; what it or JSON.parse throws ends the connection. */
export function readLines(socket: Socket, handle: (value: unknown) => void): void {
  let rest = "";
  socket.setEncoding("utf8");
  socket.on("data", (text: string) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop() ?? "";
    try {
      if (rest.length > MAX_LINE_CHARACTERS) throw new TooLargeError("a line without end", { field: "line" });
      for (const line of lines) handle(JSON.parse(line));
    } catch (error) {
      socket.destroy(error instanceof Error ? error : new Error(String(error)));
    }
  });
}
