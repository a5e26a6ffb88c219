// What the API server tells of pods in protocol buffers, in the shape of its JSON, and no more of it than is read here. It
// encodes a change once for all that watch in this form, as the cluster's own programs do; of JSON it is the bootstrap
// and the managed fields that make most, which nobody here reads. The numbers are Kubernetes' own (generated.proto) and never change.
import { bytes, decode, int, many, map, message, NoMessage, one, text, time } from "./protobuf.ts";

/** What is asked for; where a proxy knows better, JSON will do. */
export const BINARY = "application/vnd.kubernetes.protobuf";
export const BINARY_OR_JSON = `${BINARY},application/json`;

const Metadata = message({
  1: one("name", text),
  5: one("uid", text),
  6: one("resourceVersion", text),
  9: one("deletionTimestamp", time),
  11: map("labels"),
});

const State = message({
  1: one("waiting", message({ 1: one("reason", text), 2: one("message", text) })),
  2: one("running", message({ 1: one("startedAt", time) })),
  3: one(
    "terminated",
    message({
      1: one("exitCode", int),
      3: one("reason", text),
      4: one("message", text),
      5: one("startedAt", time),
    }),
  ),
});
const ContainerStatus = message({ 1: one("name", text), 2: one("state", State) });
const Condition = message({
  1: one("type", text),
  2: one("status", text),
  5: one("reason", text),
  6: one("message", text),
});
const Pod = message({
  1: one("metadata", Metadata),
  2: one("spec", message({ 10: one("nodeName", text) })),
  3: one(
    "status",
    message({
      1: one("phase", text),
      2: many("conditions", Condition),
      3: one("message", text),
      4: one("reason", text),
      8: many("containerStatuses", ContainerStatus),
      10: many("initContainerStatuses", ContainerStatus),
    }),
  ),
});
const PodList = message({
  1: one("metadata", message({ 2: one("resourceVersion", text), 3: one("continue", text) })),
  2: many("items", Pod),
});
const Status = message({
  3: one("message", text),
  4: one("reason", text),
  5: one("details", message({ 4: many("causes", message({ 3: one("field", text) })), 6: one("uid", text) })),
  6: one("code", int),
});

const KINDS = new Map(Object.entries({ Pod, PodList, Status }));

/** runtime.Unknown: what stands around each object, behind four bytes that say so. */
const MAGIC = "k8s\0";
const Envelope = message({ 1: one("type", message({ 2: one("kind", text) })), 2: one("raw", bytes) });
const Event = message({ 1: one("type", text), 2: one("object", message({ 1: one("raw", bytes) })) });

/** An answer. Throws NoMessage. */
export function objectOf(answer: Uint8Array): Record<string, unknown> {
  if (Buffer.from(answer.subarray(0, MAGIC.length)).toString("latin1") !== MAGIC) {
    throw new NoMessage("it does not begin as an object does");
  }
  const { type, raw } = decode(Envelope, answer.subarray(MAGIC.length));
  const { kind } = Object(type);
  const known = KINDS.get(String(kind));
  if (known === undefined) throw new NoMessage(`of ${kind} nothing is known`);
  // Of an object without a field that is set there is nothing.
  const object = raw instanceof Uint8Array ? decode(known, raw) : {};
  return kind === "PodList" ? { items: [], ...object } : object;
}

/** A frame of a watch. Throws NoMessage. */
export function eventOf(frame: Uint8Array): Record<string, unknown> {
  const { type, object } = decode(Event, frame);
  const { raw } = Object(object);
  if (!(raw instanceof Uint8Array)) throw new NoMessage("an event has no object");
  return { type, object: objectOf(raw) };
}
