// The cluster's DNS while a test needs it, for pods that find each other by name: those of headless Services, as the API
// server's EndpointSlices have them at that moment. On the address that test/cluster/node tells kubelet.
import { createSocket } from "node:dgram";
import * as v from "valibot";
import { kubectl } from "./cluster.ts";

const ADDRESS = "10.90.0.1";
const DOMAIN = "svc.cluster.local";
/** Of what was read from the API server, ms. */
const FRESH_MS = 1_000;
const TYPE_A = 1;
const NO_SUCH_NAME = 3;

const Slices = v.object({
  items: v.array(
    v.object({
      metadata: v.object({ namespace: v.string(), labels: v.optional(v.record(v.string(), v.string()), {}) }),
      endpoints: v.nullish(
        v.array(v.object({ addresses: v.array(v.string()), hostname: v.optional(v.string()) })),
      ),
    }),
  ),
});

async function readNames(): Promise<Map<string, string>> {
  const { items } = v.parse(Slices, JSON.parse(await kubectl("get", "endpointslices", "-A", "-o", "json")));
  const names = new Map<string, string>();
  for (const { metadata, endpoints } of items) {
    const service = metadata.labels["kubernetes.io/service-name"];
    for (const { addresses, hostname } of endpoints ?? []) {
      const [address] = addresses;
      if (hostname === undefined || address === undefined) continue;
      names.set(`${hostname}.${service}.${metadata.namespace}.${DOMAIN}`, address);
    }
  }
  return names;
}

/** The first question of a query (RFC 1035): its name, its type, and where it ends. */
function questionOf(query: Buffer): { name: string; type: number; end: number } {
  const labels: string[] = [];
  let at = 12;
  for (let length = query.readUInt8(at); length > 0; length = query.readUInt8(at)) {
    labels.push(query.toString("latin1", at + 1, at + 1 + length));
    at += 1 + length;
  }
  return { name: labels.join(".").toLowerCase(), type: query.readUInt16BE(at + 1), end: at + 5 };
}

function answerTo(query: Buffer, names: ReadonlyMap<string, string>): Buffer {
  const { name, type, end } = questionOf(query);
  const address = names.get(name);
  const answered = address !== undefined && type === TYPE_A;
  const head = Buffer.alloc(12);
  query.copy(head, 0, 0, 2);
  // A response, authoritative, to the recursion that was asked for.
  head.writeUInt16BE(0x8580 | (address === undefined ? NO_SUCH_NAME : 0), 2);
  head.writeUInt16BE(1, 4);
  head.writeUInt16BE(answered ? 1 : 0, 6);
  if (!answered) return Buffer.concat([head, query.subarray(12, end)]);
  // The question's name, type A, class IN, one second to live, four bytes.
  const record = Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4, ...address.split(".").map(Number)]);
  return Buffer.concat([head, query.subarray(12, end), record]);
}

export async function openDns(): Promise<Disposable> {
  let known: { at: number; names: Promise<Map<string, string>> } | undefined;
  const names = (): Promise<Map<string, string>> => {
    if (known === undefined || performance.now() - known.at > FRESH_MS) {
      known = { at: performance.now(), names: readNames() };
    }
    return known.names;
  };
  const socket = createSocket("udp4");
  let closed = false;
  socket.on("message", async (query, { port, address }) => {
    // Who gets no answer asks again.
    const all = await names().catch(() => undefined);
    // Pods on their way out may have asked until the end.
    if (all !== undefined && !closed) socket.send(answerTo(query, all), port, address);
  });
  await new Promise<void>((resolve, reject) => {
    socket.once("error", reject);
    socket.bind(53, ADDRESS, resolve);
  });
  return {
    [Symbol.dispose]() {
      closed = true;
      socket.close();
    },
  };
}
