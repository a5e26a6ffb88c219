// Providers and records as they are, with each call told to the metrics.
import { toSandmeshError } from "../../broker/contract/index.ts";
import type { Provider } from "../provider/provider.ts";
import type { RecordStore } from "../records/store.ts";

/** `ok`, or the code of the error. */
type Result = string;
const PROVIDER_CALLS = ["validate", "create", "remove", "remove_many", "list"] as const;
export type ProviderCall = (typeof PROVIDER_CALLS)[number];
const RECORD_WRITES = ["sandbox", "run", "forget"] as const;
export type RecordWrite = (typeof RECORD_WRITES)[number];

export interface CallMeter {
  called(provider: string, call: ProviderCall, result: Result, ms: number): void;
  wrote(what: RecordWrite, result: Result, ms: number): void;
}

async function timed<T>(work: Promise<T>, tell: (result: Result, ms: number) => void): Promise<T> {
  const began = performance.now();
  try {
    const value = await work;
    tell("ok", performance.now() - began);
    return value;
  } catch (thrown) {
    tell(toSandmeshError(thrown).code, performance.now() - began);
    throw thrown;
  }
}

/** The end of the last one; throws the first error among them. */
async function lastOf(all: readonly Promise<void>[]): Promise<void> {
  const failed = (await Promise.allSettled(all)).find((each) => each.status === "rejected");
  if (failed !== undefined) throw failed.reason;
}

/** Whatever else the provider has is as it was. */
export function meteredProvider(provider: Provider, meter: CallMeter): Provider {
  const tell = (call: ProviderCall) => (result: Result, ms: number) =>
    meter.called(provider.name, call, result, ms);
  const many = provider.removeMany?.bind(provider);
  const metered: Partial<Provider> = {
    validate: (spec) => timed(provider.validate(spec), tell("validate")),
    create: (request, signal) => timed(provider.create(request, signal), tell("create")),
    remove: (sandbox, uid, signal) => timed(provider.remove(sandbox, uid, signal), tell("remove")),
    ...(many === undefined
      ? {}
      : {
          removeMany: (all, signal) => {
            const each = many(all, signal);
            timed(lastOf(each), tell("remove_many")).catch(() => undefined);
            return each;
          },
        }),
    list: (signal) => timed(provider.list(signal), tell("list")),
  };
  return new Proxy(provider, {
    get(target, key) {
      const own: unknown = Reflect.get(metered, key);
      if (own !== undefined) return own;
      // Of itself, not of the proxy: private fields know only their own object.
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

export function meteredRecords(store: RecordStore, meter: CallMeter): RecordStore {
  const tell = (what: RecordWrite) => (result: Result, ms: number) => meter.wrote(what, result, ms);
  return {
    failed: store.failed,
    servers: store.servers,
    get trouble() {
      return store.trouble;
    },
    onTrouble: (handle) => store.onTrouble(handle),
    current: () => store.current(),
    load: () => store.load(),
    putSandbox: (record, keepMs) => timed(store.putSandbox(record, keepMs), tell("sandbox")),
    putRun: (run) => timed(store.putRun(run), tell("run")),
    forgetSandbox: (record) => timed(store.forgetSandbox(record), tell("forget")),
    forgetRun: (tenant, run) => timed(store.forgetRun(tenant, run), tell("forget")),
    putDraining: (on) => store.putDraining(on),
    close: (graceMs) => store.close(graceMs),
  };
}
