// The providers that a pool can be told to use, by name; each is loaded only where it is used.
import type { Logger } from "pino";
import * as v from "valibot";
import { check, InvalidRequestError } from "../broker/contract/index.ts";
import type { ProviderEntry } from "./config.ts";
import type { Provider } from "./provider/provider.ts";

type Make = (settings: Record<string, unknown>, log: Logger, name: string) => Promise<Provider>;

const LocalSettings = v.strictObject({
  stateDir: v.pipe(v.string(), v.startsWith("/", "must be absolute")),
  daemonDir: v.pipe(v.string(), v.startsWith("/", "must be absolute")),
  daemonArgv: v.exactOptional(v.array(v.string())),
  natsUrl: v.string(),
  hide: v.exactOptional(v.array(v.string())),
  defaults: v.exactOptional(
    v.strictObject({
      memoryBytes: v.exactOptional(v.pipe(v.number(), v.integer(), v.minValue(1024 ** 2))),
      pids: v.exactOptional(v.pipe(v.number(), v.integer(), v.minValue(16))),
    }),
  ),
});

const PROVIDERS: Record<string, Make> = {
  async kubernetes(settings, log, name) {
    const { createKubernetesProvider, KubernetesSettings } = await import("./provider/kubernetes/index.ts");
    return createKubernetesProvider(check(KubernetesSettings, settings), log, name);
  },
  async local(settings, log, name) {
    const { createLocalProvider } = await import("./provider/local/index.ts");
    return createLocalProvider({ ...check(LocalSettings, settings), log, name });
  },
  async simulated(settings, _log, name) {
    const { createSimulatedProvider, SimulatedSettings } = await import("./provider/simulated/index.ts");
    return createSimulatedProvider(check(SimulatedSettings, settings), undefined, name);
  },
};

/** Throws InvalidRequestError for a kind that there is none of, or settings that cannot be. */
export async function makeProvider(
  { name, kind = name, settings }: Pick<ProviderEntry, "name" | "kind" | "settings">,
  log: Logger,
): Promise<Provider> {
  const make = Object.hasOwn(PROVIDERS, kind) ? PROVIDERS[kind] : undefined;
  if (make === undefined) {
    const known = Object.keys(PROVIDERS).join(", ");
    throw new InvalidRequestError(`no provider ${JSON.stringify(kind)}; there are: ${known}`, {
      field: "providers",
    });
  }
  return make(settings, log.child({ provider: name }), name);
}
