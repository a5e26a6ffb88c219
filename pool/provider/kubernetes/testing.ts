// For the tests beside: pods as the API server tells of them, requests for them, settings.
import * as v from "valibot";
import type { CreateRequest } from "../provider.ts";
import { PodView } from "./observe.ts";
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
