// The simulated provider: virtual sandboxes that speak the real protocol, for scale and for chaos.
import { join } from "node:path";
import * as v from "valibot";
import {
  ImageError,
  ProviderError,
  type SandboxSpec,
  UnsupportedError,
} from "../../../broker/contract/index.ts";
import type { Created, CreateRequest, Listed, Provider, ProviderEvent, Removed } from "../provider.ts";
import { FateSettings, hash } from "./fate.ts";
import { RemoteWorld } from "./remote.ts";
import { LocalWorld, type World } from "./world.ts";

export const SimulatedSettings = v.object({
  ...FateSettings.entries,
  hosts: v.optional(
    v.pipe(
      v.number(),
      v.integer(),
      v.minValue(0),
      v.maxValue(64),
      v.description("Processes that host the sandboxes; 0: the pool's own, and they end with it"),
    ),
    0,
  ),
  stateDir: v.optional(v.pipe(v.string(), v.description("Folder of the hosts' sockets; needed with hosts"))),
  missingImages: v.optional(
    v.pipe(v.array(v.string()), v.description("Images that do not exist; all others do")),
    ["missing"],
  ),
});
export type SimulatedSettings = v.InferOutput<typeof SimulatedSettings>;

/** What a virtual sandbox has nothing to do with. */
const UNSUPPORTED = ["volumes", "sidecars", "extended_resources", "entrypoint", "user", "template"] as const;

/** `worlds`: instead of those that the settings say. Throws ValiError for bad settings. */
export async function createSimulatedProvider(
  given: v.InferInput<typeof SimulatedSettings> = {},
  worlds?: readonly World[],
  name?: string,
): Promise<SimulatedProvider> {
  const settings = v.parse(SimulatedSettings, given);
  return new SimulatedProvider(settings, worlds ?? worldsOf(settings), name);
}

export class SimulatedProvider implements Provider {
  readonly name: string;
  readonly #settings: SimulatedSettings;
  readonly #worlds: readonly World[];

  constructor(settings: SimulatedSettings, worlds: readonly World[], name = "simulated") {
    this.name = name;
    this.#settings = settings;
    this.#worlds = worlds;
  }

  #worldOf(sandbox: string): World {
    const world = this.#worlds[hash(sandbox) % this.#worlds.length];
    if (world === undefined) throw new ProviderError("a provider without a world", { sandbox });
    return world;
  }

  async validate(spec: SandboxSpec): Promise<void> {
    if (this.#settings.missingImages.includes(spec.image)) {
      throw new ImageError(`the image ${spec.image} does not exist`, { field: "spec.image" });
    }
    for (const field of UNSUPPORTED) {
      const wish = spec[field];
      if (wish === undefined || wish === false || (Array.isArray(wish) && wish.length === 0)) continue;
      throw new UnsupportedError(`a virtual sandbox has no ${field}`, { field: `spec.${field}` });
    }
    if (spec.network?.startsWith("policy:")) {
      throw new UnsupportedError("a virtual sandbox has no network policies", { field: "spec.network" });
    }
  }

  async create(request: CreateRequest, signal: AbortSignal): Promise<Created> {
    await this.validate(request.spec);
    const { sandbox, tenant, bootstrap, maxLifeMs } = request;
    return this.#worldOf(sandbox).create({ sandbox, tenant, bootstrap, maxLifeMs }, signal);
  }

  async remove(sandbox: string, uid: string | undefined, signal: AbortSignal): Promise<void> {
    await this.#worldOf(sandbox).remove(sandbox, uid, signal);
  }

  /** As many at once as the pool wants: each is a message, and their ends go side by side. */
  removeMany(batch: readonly Removed[], signal: AbortSignal): Promise<void>[] {
    return batch.map(({ sandbox, uid }) => this.remove(sandbox, uid, signal));
  }

  async list(signal: AbortSignal): Promise<Listed[]> {
    return (await Promise.all(this.#worlds.map((world) => world.list(signal)))).flat();
  }

  watch(handle: (event: ProviderEvent) => void): () => void {
    const ends = this.#worlds.map((world) => world.watch(handle));
    return () => {
      for (const end of ends) end();
    };
  }

  notIsolated(_spec: SandboxSpec): string[] {
    return ["everything: a virtual sandbox is a part of a process, and limits nothing"];
  }

  /** Ends a sandbox's daemon, as a crash would. For tests and chaos. */
  crash(sandbox: string): Promise<void> {
    return this.#worldOf(sandbox).crash(sandbox);
  }

  /** The sandboxes live on; those of this process as long as it does. */
  async close(): Promise<void> {
    await Promise.all(this.#worlds.map((world) => world.close()));
  }
}

function worldsOf(settings: SimulatedSettings): World[] {
  const { hosts, stateDir } = settings;
  if (hosts === 0) return [new LocalWorld(settings)];
  if (stateDir === undefined) {
    throw new UnsupportedError("hosts need a folder for their sockets", { field: "stateDir" });
  }
  const fates = v.parse(FateSettings, settings);
  return Array.from({ length: hosts }, (_, i) => new RemoteWorld(join(stateDir, `host-${i}.sock`), fates));
}
