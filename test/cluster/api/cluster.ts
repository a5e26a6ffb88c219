// For the tests of the provider on a real API server whose nodes are fake: a namespace of their own, its provider, and
// what the provider tells.
import * as v from "valibot";
import { newSandboxId, randomName } from "../../../broker/contract/index.ts";
import { until } from "../../../broker/server/testing.ts";
import { createKubernetesProvider, KubernetesSettings } from "../../../pool/provider/kubernetes/index.ts";
import type { CreateRequest, ProviderEvent } from "../../../pool/provider/provider.ts";
import { output } from "../output.ts";

/** The API server is on the same two cores as all else. */
const TOLD_MS = 30_000;
export const quiet = { info: () => undefined, warn: () => undefined };

/** kubectl's output; `input` is what it reads. Throws with what it said. */
export const kubectl = (argv: string[], input?: string): Promise<string> =>
  output(["kubectl", "--request-timeout=30s", ...argv], input);

/** Makes what the object says. */
export const apply = (object: object): Promise<string> =>
  kubectl(["create", "-f", "-"], JSON.stringify(object));

type Given = Partial<v.InferInput<typeof KubernetesSettings>>;

/** A namespace with a provider in it; with its end all is removed. */
export class Place implements AsyncDisposable {
  readonly namespace: string;
  readonly told: ProviderEvent[] = [];
  readonly provider;

  private constructor(namespace: string, given: Given) {
    this.namespace = namespace;
    const settings = v.parse(KubernetesSettings, {
      mesh: namespace,
      namespace,
      daemon: { by: "image", image: "simulated", pullPolicy: "Never" },
      nodeSelector: { type: "kwok" },
      tolerations: [{ key: "kwok.x-k8s.io/node", operator: "Exists" }],
      ...given,
    });
    this.provider = createKubernetesProvider(settings, quiet);
    this.provider.watch((event) => this.told.push(event));
  }

  static async open(given: Given = {}, labels: Record<string, string> = {}): Promise<Place> {
    const name = `test-${randomName(8)}`;
    await apply({ apiVersion: "v1", kind: "Namespace", metadata: { name, labels } });
    const account = () =>
      kubectl(["-n", name, "get", "serviceaccount", "default"]).then(
        () => true,
        () => false,
      );
    await until("the namespace's service account", account, TOLD_MS);
    return new Place(name, given);
  }

  request(spec: object = {}): CreateRequest {
    const sandbox = newSandboxId();
    const bootstrap = {
      version: 1 as const,
      urls: ["nats://127.0.0.1:1"],
      tenant: "acme",
      sandbox,
      generation: 1,
      jwt: "none",
      seed: "none",
      boot_timeout_ms: 60_000,
    };
    const whole = { image: "simulated", ...spec };
    return { sandbox, tenant: "acme", run: "run-1", spec: whole, bootstrap, maxLifeMs: 3_600_000 };
  }

  /** Creates one and answers its name. */
  async create(spec: object = {}): Promise<string> {
    const request = this.request(spec);
    await this.provider.create(request, AbortSignal.timeout(60_000));
    return request.sandbox;
  }

  async createRunning(spec: object = {}): Promise<string> {
    const sandbox = await this.create(spec);
    await this.hears(sandbox, "running");
    return sandbox;
  }

  /** What the provider tells of it, as soon as it does. */
  hears<T extends ProviderEvent["type"]>(
    sandbox: string,
    type: T,
  ): Promise<Extract<ProviderEvent, { type: T }>> {
    const is = (event: ProviderEvent): event is Extract<ProviderEvent, { type: T }> =>
      event.type === type && event.sandbox === sandbox;
    return until(
      `${type} of ${sandbox}; told: ${JSON.stringify(this.told)}`,
      () => this.told.find(is),
      TOLD_MS,
    );
  }

  pod(sandbox: string, path: string): Promise<string> {
    return kubectl(["-n", this.namespace, "get", "pod", sandbox, "-o", `jsonpath=${path}`]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.provider.close();
    await kubectl(["delete", "namespace", this.namespace, "--wait=false"]);
  }
}
