// For the tests beside: pods as the API server tells of them, one by one or by a source whose every word is the test's own,
// requests for them, settings.
import * as v from "valibot";
import type { CreateRequest } from "../provider.ts";
import type { Line } from "./api/collection.ts";
import { PodView } from "./observe.ts";
import type { Source } from "./reflect.ts";
import { KubernetesSettings } from "./settings.ts";

export function podView({ metadata = {}, spec = {}, status = {} }: Record<string, object>): PodView {
  return v.parse(PodView, {
    metadata: { name: "sb-1", uid: "uid-1", resourceVersion: "1", ...metadata },
    spec,
    status: { phase: "Pending", ...status },
  });
}

export const settingsOf = (more: object = {}): KubernetesSettings =>
  v.parse(KubernetesSettings, { mesh: "test", daemon: { by: "hostPath", path: "/daemon/1" }, ...more });

export function requestOf(spec: object = {}, more: Partial<CreateRequest> = {}): CreateRequest {
  return {
    sandbox: "sb-1",
    tenant: "acme",
    run: "run-1",
    spec: { image: "task:1", ...spec },
    maxLifeMs: 90_500,
    bootstrap: {
      version: 1,
      urls: ["nats://nats:4222"],
      tenant: "acme",
      sandbox: "sb-1",
      generation: 1,
      jwt: "jwt",
      seed: "seed",
      boot_timeout_ms: 60_000,
    },
    ...more,
  };
}

export const silent = { info: () => undefined, warn: () => undefined };

type Step = Line<PodView> | Error | "end";

/** A list, then what the watch says; each watch that is begun is noted with where it went on from. */
export class Script implements Source<PodView> {
  readonly asked: string[] = [];
  items: PodView[] = [];
  version = "10";
  listing: Promise<void> | undefined;
  #steps: Step[] = [];
  #wake: (() => void) | undefined;

  say(...steps: Step[]): void {
    this.#steps.push(...steps);
    this.#wake?.();
  }

  async list(): Promise<{ items: PodView[]; version: string }> {
    this.asked.push("list");
    const found = { items: this.items, version: this.version };
    await this.listing;
    return found;
  }

  async *watch(version: string, signal: AbortSignal): AsyncGenerator<Line<PodView>, void> {
    this.asked.push(`watch ${version}`);
    const aborted = new Promise<never>((_, reject) =>
      signal.addEventListener("abort", () => reject(new Error("aborted")), { once: true }),
    );
    aborted.catch(() => undefined);
    for (;;) {
      const step = this.#steps.shift();
      if (step === undefined) {
        const more = new Promise<void>((wake) => {
          this.#wake = wake;
        });
        await Promise.race([more, aborted]);
      } else if (step === "end") return;
      else if (step instanceof Error) throw step;
      else yield step;
    }
  }
}

export const changed = (type: "ADDED" | "MODIFIED" | "DELETED", object: PodView): Line<PodView> => ({
  type,
  object,
});
