// What the kubernetes provider can be told: each value with its unit, default and reason.
import * as v from "valibot";

const ms = (byDefault: number, why: string) =>
  v.optional(
    v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(86_400_000), v.description(`ms. ${why}`)),
    byDefault,
  );
const word = (why: string) => v.exactOptional(v.pipe(v.string(), v.minLength(1), v.description(why)));
const absolute = v.pipe(v.string(), v.startsWith("/", "must be absolute"));
const pullPolicy = v.optional(v.picklist(["IfNotPresent", "Always", "Never"]), "IfNotPresent");

/** How the daemon's folder gets into an unmodified image, best first. */
const DaemonSource = v.variant("by", [
  v.strictObject({
    by: v.pipe(v.literal("image"), v.description("Image volume: the ImageVolume feature, containerd 2.1")),
    image: v.pipe(v.string(), v.minLength(1), v.description("Whose root is the daemon's folder")),
    pullPolicy,
  }),
  v.strictObject({
    by: v.pipe(v.literal("hostPath"), v.description("A folder on each node that an installer keeps")),
    path: absolute,
  }),
  v.strictObject({
    by: v.pipe(v.literal("init"), v.description("Copied for each pod: works everywhere, costs 112 MB a pod")),
    image: v.pipe(v.string(), v.minLength(1)),
    command: v.optional(v.pipe(v.array(v.string()), v.description("Copies the daemon into /target")), () =>
      "/bin/cp -a /sandmesh-agent /sandmesh-daemon /sandmesh-engine.so /lib /target/".split(" "),
    ),
    pullPolicy,
  }),
]);

/** What a pod that requests nothing lacks: the scheduler sees nothing of it, all such pods of a node share two thousandths of a
 * core where others want it, and the kubelet evicts them first. */
const DefaultRequests = v.pipe(
  v.strictObject({
    cpu: v.optional(
      v.pipe(
        v.number(),
        v.minValue(0),
        v.maxValue(64),
        v.description("Cores. A daemon at rest needs less; it is the weight that it and its commands have"),
      ),
      0.02,
    ),
    memoryBytes: v.optional(
      v.pipe(
        v.number(),
        v.integer(),
        v.minValue(0),
        v.maxValue(2 ** 40),
        v.description("Bytes. What a daemon has for its own after some thousand commands, and twice that"),
      ),
      32 * 2 ** 20,
    ),
  }),
  v.description(
    "What a container requests whose spec says nothing of it (sidecars and the daemon's copier, too), with no limit; 0: nothing, so that the namespace's LimitRange decides",
  ),
);

const CAPABILITY_PROFILES = ["strict", "default", "root-tools"] as const;
export type CapabilityProfile = (typeof CAPABILITY_PROFILES)[number];

export const KubernetesSettings = v.strictObject({
  mesh: v.pipe(
    v.string(),
    v.regex(/^[a-z0-9][a-z0-9-]{0,62}$/),
    v.description("Label of all it makes; two pools that share a namespace need two names"),
  ),
  namespace: v.optional(v.pipe(v.string(), v.regex(/^[a-z0-9][a-z0-9-]{0,62}$/)), "default"),
  kubeconfig: word("File; default $KUBECONFIG, the pod's own service account, ~/.kube/config"),
  context: word("Of the kubeconfig; default its current one"),
  daemon: DaemonSource,
  imagePullPolicy: v.optional(
    v.pipe(v.picklist(["IfNotPresent", "Always", "Never"]), v.description("Of the sandbox's image")),
    "IfNotPresent",
  ),
  capabilities: v.optional(
    v.pipe(
      v.picklist(CAPABILITY_PROFILES),
      v.description(
        "strict: none. default: what files and users need. root-tools: the runtime's own, and sudo",
      ),
    ),
    "default",
  ),
  entrypoints: v.optional(
    v.pipe(
      v.record(v.string(), v.pipe(v.array(v.string()), v.minLength(1))),
      v.description(
        "ENTRYPOINT and CMD by image, or by image without tag and digest: for specs that ask for the image's own entrypoint, since no registry is asked",
      ),
    ),
    () => ({}),
  ),
  readOnlyRoot: v.optional(
    v.pipe(v.boolean(), v.description("The image's own files cannot be written")),
    false,
  ),
  runAsNonRoot: v.optional(v.boolean(), false),
  allowHostNetwork: v.optional(
    v.pipe(v.boolean(), v.description("Whether a spec may ask for network host: the node's own")),
    false,
  ),
  hostPaths: v.optional(
    v.pipe(
      v.array(absolute),
      v.description("Node folders that volumes may show, read-only; none by default"),
    ),
    () => [],
  ),
  cpuRequestRatio: v.optional(
    v.pipe(
      v.number(),
      v.minValue(0),
      v.maxValue(1),
      v.description("Request by limit: sandboxes idle while models think, so nodes can be filled further"),
    ),
    1,
  ),
  defaultRequests: v.optional(DefaultRequests, {}),
  placement: v.optional(
    v.pipe(
      v.picklist(["scheduler", "direct"]),
      v.description(
        "direct: the pool names the node itself, of directNodes, and asks the scheduler only where none takes the pod; needs the right to list and watch nodes",
      ),
    ),
    "scheduler",
  ),
  directNodes: v.optional(
    v.pipe(
      v.string(),
      v.minLength(1),
      v.description("Label selector of the nodes that `direct` may use; best where nothing else runs"),
    ),
    "sandmesh.dev/placement=direct",
  ),
  runtimeClass: word("Such as gvisor or kata"),
  schedulerName: word("Another scheduler than the cluster's"),
  priorityClass: word("Sandboxes are to be preempted before services are"),
  imagePullSecrets: v.optional(v.array(v.string()), () => []),
  nodeSelector: v.optional(v.record(v.string(), v.string()), () => ({})),
  tolerations: v.optional(v.array(v.record(v.string(), v.union([v.string(), v.number()]))), () => []),
  ownerConfigMap: word(
    "ConfigMap in the pods' namespace that owns them: deleted, the cluster takes them with it. Needs the right to get it; the chart makes both",
  ),
  podTemplate: v.exactOptional(
    v.pipe(
      v.record(v.string(), v.unknown()),
      v.description("JSON merge patch (RFC 7396) over each pod, for what the platform team must add"),
    ),
  ),
  graceMs: ms(1_000, "From the deletion to SIGKILL; whole seconds, at least one"),
  forceAfterMs: ms(
    180_000,
    "A deletion that is not through by then is forced: its node may be lost. A forced one leaves what a slow node runs",
  ),
  unschedulableMs: ms(60_000, "How long a pod may find no node; an autoscaler needs minutes: give it those"),
  imageRetryMs: ms(20_000, "How long a failing pull, that may be the network's fault, is left to be retried"),
  requestTimeoutMs: ms(30_000, "One request to the API server"),
  maxRequests: v.optional(
    v.pipe(
      v.number(),
      v.integer(),
      v.minValue(1),
      v.maxValue(256),
      v.description(
        "At the API server at once, each on a connection of its own; beyond 32 it only queues there",
      ),
    ),
    32,
  ),
});
export type KubernetesSettings = v.InferOutput<typeof KubernetesSettings>;
