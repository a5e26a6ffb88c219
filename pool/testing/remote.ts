// For tests: the provider double in another process than the pool, so that its sandboxes live on when that is killed.
import * as v from "valibot";
import { Bootstrap, fromWire, SandboxSpec, toSandmeshError } from "../../broker/contract/index.ts";
import { type CreateRequest, PHASES, type Provider } from "../provider/provider.ts";

const Create = v.object({
  sandbox: v.string(),
  tenant: v.string(),
  run: v.string(),
  spec: SandboxSpec,
  bootstrap: Bootstrap,
  maxLifeMs: v.number(),
});
const Call = v.variant("call", [
  v.object({ call: v.literal("create"), request: Create }),
  v.object({ call: v.literal("remove"), sandbox: v.string() }),
  v.object({ call: v.literal("list") }),
]);
type Call = v.InferInput<typeof Call>;
const Listing = v.array(
  v.object({
    sandbox: v.string(),
    tenant: v.string(),
    uid: v.string(),
    phase: v.picklist(PHASES),
    reason: v.exactOptional(v.string()),
  }),
);
const Created = v.object({ uid: v.string() });
const Failure = v.object({
  error: v.looseObject({ code: v.string(), message: v.string(), retryable: v.boolean() }),
});

async function carryOut(provider: Provider, call: v.InferOutput<typeof Call>): Promise<unknown> {
  const never = new AbortController().signal;
  if (call.call === "create") return provider.create(call.request as CreateRequest, never);
  if (call.call === "list") return provider.list(never);
  await provider.remove(call.sandbox, undefined, never);
  return {};
}

/** Offers a provider on a free port of the loopback. */
export function serveProvider(provider: Provider): { url: string; stop(): Promise<void> } {
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    fetch: async (request) => {
      try {
        return Response.json((await carryOut(provider, v.parse(Call, await request.json()))) ?? {});
      } catch (thrown) {
        return Response.json({ error: toSandmeshError(thrown).toWire() });
      }
    },
  });
  return { url: server.url.href, stop: () => server.stop(true) };
}

/** The other side of it. */
export function remoteProvider(name: string, url: string): Provider {
  const ask = async (call: Call, signal: AbortSignal): Promise<unknown> => {
    const response = await fetch(url, { method: "POST", body: JSON.stringify(call), signal });
    const answer: unknown = await response.json();
    const failure = v.safeParse(Failure, answer);
    if (failure.success) throw fromWire(failure.output.error);
    return answer;
  };
  return {
    name,
    validate: async () => {},
    create: async (request, signal) => v.parse(Created, await ask({ call: "create", request }, signal)),
    remove: async (sandbox, _uid, signal) => {
      await ask({ call: "remove", sandbox }, signal);
    },
    list: async (signal) => v.parse(Listing, await ask({ call: "list" }, signal)),
    watch: () => () => {},
    notIsolated: () => [],
    close: async () => {},
  };
}
