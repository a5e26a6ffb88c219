// What a cluster can do for sandboxes: its version, our rights, the namespace's Pod Security, and which way the daemon gets
// into a pod. Pods are shown to the API server as a dry run: what it says is what it would do. Nothing is made.
import * as v from "valibot";
import { type SandmeshError, toSandmeshError } from "../../../broker/contract/index.ts";
import type { CreateRequest } from "../provider.ts";
import { type Access, openAccess } from "./api/access.ts";
import { errorOf } from "./api/status.ts";
import { type ApiRequest, Transport } from "./api/transport.ts";
import { podOf } from "./pod.ts";
import { KubernetesSettings } from "./settings.ts";

export interface ClusterFinding {
  check: string;
  ok: boolean;
  detail: string;
  fix?: string;
}

const LIMITS = { maxRequests: 16, requestTimeoutMs: 5_000 };
const ALL_MS = 20_000;
const LEVEL = "pod-security.kubernetes.io/enforce";

const POD_VERBS = ["create", "delete", "deletecollection", "get", "list", "watch"];
const NODE_VERBS = ["list", "watch"];

/** The daemon's ways in, best first, with what each needs that a dry run cannot see. */
const WAYS = {
  image: {
    settings: { by: "image", image: "sandmesh-daemon:dry-run" },
    needs: "nodes with containerd 2.1 and kubelets with the ImageVolume feature",
  },
  hostPath: {
    settings: { by: "hostPath", path: "/var/lib/sandmesh/daemon/dry-run" },
    needs: "the chart's installer on each node",
  },
  init: {
    settings: { by: "init", image: "sandmesh-daemon:dry-run" },
    needs: "nothing more, but 112 MB are copied for each pod",
  },
} as const;
type Way = keyof typeof WAYS;

/** Best first: what of an image works under each. */
const PROFILES = [
  { words: "", settings: {} },
  {
    words: " with capabilities strict and runAsNonRoot, so for images whose user is a number other than 0",
    settings: { capabilities: "strict", runAsNonRoot: true },
  },
] as const;

/** Never throws: what cannot be found out is a finding. At most some 20 s. */
export async function diagnose(access?: Access): Promise<ClusterFinding[]> {
  let transport: Transport | undefined;
  try {
    const open = access ?? openAccess(undefined, undefined);
    transport = new Transport(open, LIMITS);
    return await new Doctor(transport, open.namespace ?? "default").findings(open.server);
  } catch (thrown) {
    const detail = toSandmeshError(thrown).message;
    return [{ check: "kubernetes", ok: false, detail, fix: "see $KUBECONFIG; kubectl version" }];
  } finally {
    transport?.close();
  }
}

class Doctor {
  readonly #transport: Transport;
  readonly #namespace: string;
  readonly #signal = AbortSignal.timeout(ALL_MS);

  constructor(transport: Transport, namespace: string) {
    this.#transport = transport;
    this.#namespace = namespace;
  }

  async findings(server: URL): Promise<ClusterFinding[]> {
    const { gitVersion } = await this.#read(
      { method: "GET", path: "/version" },
      v.object({ gitVersion: v.string() }),
    );
    const version = { check: "kubernetes", ok: true, detail: `${gitVersion} at ${server.host}` };
    const others = await Promise.all([
      this.#podRights(),
      this.#nodeRights(),
      this.#podSecurity(),
      this.#ways(),
    ]);
    return [version, ...others.flat()];
  }

  async #read<S extends v.GenericSchema<unknown, unknown>>(
    request: ApiRequest,
    schema: S,
  ): Promise<v.InferOutput<S>> {
    const reply = await this.#transport.request(request, this.#signal, false);
    if (reply.status >= 300) throw errorOf(reply, `${request.method} ${request.path}`);
    return v.parse(schema, reply.body);
  }

  async #lacks(resource: string, verbs: string[], namespace: string | undefined): Promise<string[]> {
    const Review = v.object({ status: v.object({ allowed: v.boolean() }) });
    const path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    const allowed = await Promise.all(
      verbs.map(async (verb) => {
        const resourceAttributes = { verb, resource, ...(namespace === undefined ? {} : { namespace }) };
        const body = {
          apiVersion: "authorization.k8s.io/v1",
          kind: "SelfSubjectAccessReview",
          spec: { resourceAttributes },
        };
        return (await this.#read({ method: "POST", path, body }, Review)).status.allowed;
      }),
    );
    return verbs.filter((_, i) => allowed[i] !== true);
  }

  #podRights(): Promise<ClusterFinding> {
    const check = "kubernetes rights";
    return this.#orWhy(check, async () => {
      const lacking = await this.#lacks("pods", POD_VERBS, this.#namespace);
      const where = `in namespace ${this.#namespace}`;
      if (lacking.length === 0) return { check, ok: true, detail: `all that a pool needs ${where}` };
      const detail = `pods cannot be given: ${lacking.join(", ")}, ${where}`;
      return { check, ok: false, detail, fix: "the chart's Role has them" };
    });
  }

  #nodeRights(): Promise<ClusterFinding> {
    const check = "kubernetes direct";
    return this.#orWhy(check, async () => {
      const lacking = await this.#lacks("nodes", NODE_VERBS, undefined);
      if (lacking.length === 0)
        return { check, ok: true, detail: "nodes can be watched, for placement: direct" };
      const detail = `nodes: no right to ${lacking.join(", ")}; needed for placement: direct alone`;
      return {
        check,
        ok: false,
        detail,
        fix: "the chart's ClusterRole, with pool.kubernetes.placement=direct",
      };
    });
  }

  #podSecurity(): Promise<ClusterFinding> {
    const check = "kubernetes pod security";
    return this.#orWhy(check, async () => {
      const Namespace = v.object({
        metadata: v.object({ labels: v.optional(v.record(v.string(), v.string()), {}) }),
      });
      const path = `/api/v1/namespaces/${this.#namespace}`;
      const { metadata } = await this.#read({ method: "GET", path }, Namespace);
      const level = metadata.labels[LEVEL];
      const said = level === undefined ? "no label: the cluster's default holds" : `enforces ${level}`;
      return { check, ok: true, detail: `namespace ${this.#namespace}: ${said}` };
    });
  }

  async #ways(): Promise<ClusterFinding[]> {
    const ways: Way[] = ["image", "hostPath", "init"];
    return await Promise.all(ways.map((way) => this.#way(way)));
  }

  #way(way: Way): Promise<ClusterFinding> {
    const check = `kubernetes daemon by ${way}`;
    return this.#orWhy(check, async () => {
      let first: SandmeshError | undefined;
      for (const profile of PROFILES) {
        const refusal = await this.#dryRun(way, profile.settings);
        if (refusal === undefined) {
          return { check, ok: true, detail: `admitted${profile.words}; needs ${WAYS[way].needs}` };
        }
        first ??= refusal;
      }
      return { check, ok: false, detail: first?.message ?? "", ...fixOf(way, first?.message ?? "") };
    });
  }

  /** Shows the API server the pod that the provider would make. */
  async #dryRun(way: Way, more: object): Promise<SandmeshError | undefined> {
    const namespace = this.#namespace;
    const given = { mesh: "sandmesh-doctor", namespace, daemon: WAYS[way].settings, ...more };
    const body = podOf(PATIENT, v.parse(KubernetesSettings, given));
    const path = `/api/v1/namespaces/${namespace}/pods?dryRun=All`;
    const reply = await this.#transport.request({ method: "POST", path, body }, this.#signal, false);
    return reply.status < 300 ? undefined : errorOf(reply, "as a dry run");
  }

  async #orWhy(check: string, find: () => Promise<ClusterFinding>): Promise<ClusterFinding> {
    try {
      return await find();
    } catch (thrown) {
      return { check, ok: false, detail: `cannot be told: ${toSandmeshError(thrown).message}` };
    }
  }
}

function fixOf(way: Way, said: string): { fix?: string } {
  if (/violates PodSecurity/.test(said)) {
    const level = way === "hostPath" ? "privileged" : "baseline";
    return { fix: `kubectl label namespace … ${LEVEL}=${level}, or another way in` };
  }
  // The API server drops the field of a feature that is off, and then misses a volume's kind.
  if (way === "image" && /volume/i.test(said)) {
    return { fix: "the ImageVolume feature: on by default from Kubernetes 1.35, else a feature gate" };
  }
  return {};
}

const PATIENT: CreateRequest = {
  sandbox: "sandmesh-doctor-dry-run",
  tenant: "doctor",
  run: "doctor",
  spec: { image: "busybox" },
  maxLifeMs: 60_000,
  bootstrap: {
    version: 1,
    urls: ["nats://127.0.0.1:4222"],
    tenant: "doctor",
    sandbox: "sandmesh-doctor-dry-run",
    generation: 1,
    jwt: "none",
    seed: "none",
    boot_timeout_ms: 1_000,
  },
};
