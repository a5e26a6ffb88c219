// From a request to a pod: pure. Nothing of the image is changed; the daemon is mounted beside it and started in its
// entrypoint's place.
import type {
  V1Container,
  V1OwnerReference,
  V1Pod,
  V1SecurityContext,
  V1Volume,
  V1VolumeMount,
} from "@kubernetes/client-node";
import type { Bootstrap } from "../../../broker/contract/index.ts";
import type { CreateRequest } from "../provider.ts";
import { mergePatch } from "./merge-patch.ts";
import type { CapabilityProfile, KubernetesSettings } from "./settings.ts";
import { entrypointOf, parseUser, parseVolume } from "./spec.ts";

/** Where the daemon's folder is mounted, in every provider. */
export const DAEMON_FOLDER = "/.sandmesh/daemon";
export const MAIN_CONTAINER = "sandbox";

export const LABEL = {
  mesh: "sandmesh.dev/mesh",
  tenant: "sandmesh.dev/tenant",
  run: "sandmesh.dev/run",
  /** Its own name: a group can then be deleted by one request. */
  sandbox: "sandmesh.dev/sandbox",
  /** What network policies select by. */
  network: "sandmesh.dev/network",
  managedBy: "app.kubernetes.io/managed-by",
} as const;

/** Who copies the daemon where root may not: nobody's number. */
const COPIER = 65532;

/** What files of other users, and commands as other users, need; no more. */
const FILE_AND_USER = "CHOWN DAC_OVERRIDE FOWNER FSETID KILL SETGID SETUID SETPCAP SYS_CHROOT".split(" ");

function securityContext(request: CreateRequest, settings: KubernetesSettings): V1SecurityContext {
  const user = request.spec.user === undefined ? undefined : parseUser(request.spec.user);
  return {
    allowPrivilegeEscalation: settings.capabilities === "root-tools",
    capabilities: capabilitiesOf(settings.capabilities),
    ...(settings.readOnlyRoot ? { readOnlyRootFilesystem: true } : {}),
    ...(settings.runAsNonRoot ? { runAsNonRoot: true } : {}),
    ...(user === undefined ? {} : { runAsUser: user.uid }),
    ...(user?.gid === undefined ? {} : { runAsGroup: user.gid }),
  };
}

function capabilitiesOf(profile: CapabilityProfile): NonNullable<V1SecurityContext["capabilities"]> {
  switch (profile) {
    case "strict":
      return { drop: ["ALL"] };
    case "default":
      return { drop: ["ALL"], add: FILE_AND_USER };
    case "root-tools":
      return { drop: ["MKNOD", "NET_RAW", "AUDIT_WRITE"] };
  }
}

/** Kubernetes' own notation; a thousandth of a core is the least it knows. */
const cores = (count: number): string => `${Math.max(1, Math.round(count * 1000))}m`;

/** In none of a pod's containers may they be missing: a ResourceQuota of requests asks each, those that run before it, too. */
export function defaultRequests({
  defaultRequests: { cpu, memoryBytes },
}: KubernetesSettings): Record<string, string> {
  return {
    ...(cpu === 0 ? {} : { cpu: cores(cpu) }),
    ...(memoryBytes === 0 ? {} : { memory: String(memoryBytes) }),
  };
}

function resourcesOf({ spec }: CreateRequest, settings: KubernetesSettings) {
  const limits: Record<string, string> = {};
  const requests = defaultRequests(settings);
  if (spec.cpu !== undefined) {
    limits.cpu = cores(spec.cpu);
    requests.cpu = cores(spec.cpu * settings.cpuRequestRatio);
  }
  if (spec.memory_bytes !== undefined) limits.memory = requests.memory = String(spec.memory_bytes);
  if (spec.disk_bytes !== undefined) {
    limits["ephemeral-storage"] = requests["ephemeral-storage"] = String(spec.disk_bytes);
  }
  for (const [name, units] of Object.entries(spec.extended_resources ?? {})) limits[name] = String(units);
  return { limits, requests };
}

interface Mounts {
  volumes: V1Volume[];
  mounts: V1VolumeMount[];
  init: V1Container[];
}

function daemonMounts(settings: KubernetesSettings): Mounts {
  const { daemon, runAsNonRoot } = settings;
  const name = "sandmesh-daemon";
  const mount: V1VolumeMount = { name, mountPath: DAEMON_FOLDER, readOnly: true };
  switch (daemon.by) {
    case "image": {
      const image = { reference: daemon.image, pullPolicy: daemon.pullPolicy };
      return { volumes: [{ name, image }], mounts: [mount], init: [] };
    }
    case "hostPath":
      return {
        volumes: [{ name, hostPath: { path: daemon.path, type: "Directory" } }],
        mounts: [mount],
        init: [],
      };
    case "init": {
      const init: V1Container = {
        name,
        image: daemon.image,
        imagePullPolicy: daemon.pullPolicy,
        command: daemon.command,
        resources: { requests: defaultRequests(settings) },
        volumeMounts: [{ name, mountPath: "/target" }],
        securityContext: {
          allowPrivilegeEscalation: false,
          capabilities: { drop: ["ALL"] },
          ...(runAsNonRoot ? { runAsUser: COPIER, runAsGroup: COPIER } : {}),
        },
      };
      return { volumes: [{ name, emptyDir: {} }], mounts: [mount], init: [init] };
    }
  }
}

function dataMounts({ spec }: CreateRequest): Pick<Mounts, "volumes" | "mounts"> {
  const volumes: V1Volume[] = [];
  const mounts: V1VolumeMount[] = [];
  for (const { name: given, source, mount_path: mountPath } of spec.volumes ?? []) {
    const name = `data-${given}`.slice(0, 63);
    const { kind, value } = parseVolume(source);
    if (kind === "image") volumes.push({ name, image: { reference: value, pullPolicy: "IfNotPresent" } });
    else if (kind === "hostPath") volumes.push({ name, hostPath: { path: value, type: "Directory" } });
    else volumes.push({ name, persistentVolumeClaim: { claimName: value, readOnly: true } });
    mounts.push({ name, mountPath, readOnly: true });
  }
  return { volumes, mounts };
}

/** As init containers that always restart: the pod ends with the sandbox's own container, not with theirs. */
function sidecars({ spec }: CreateRequest, settings: KubernetesSettings): V1Container[] {
  return (spec.sidecars ?? []).map(({ name, image, command, env }) => ({
    name,
    image,
    restartPolicy: "Always",
    ...(command === undefined ? {} : { command }),
    resources: { requests: defaultRequests(settings) },
    env: Object.entries(env ?? {}).flatMap(([key, value]) => (value === null ? [] : [{ name: key, value }])),
    securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ["ALL"] } },
  }));
}

function bootstrapOf({ bootstrap, spec }: CreateRequest, settings: KubernetesSettings): Bootstrap {
  const entrypoint = spec.entrypoint === true ? entrypointOf(spec.image, settings) : undefined;
  return { ...bootstrap, image: spec.image, ...(entrypoint === undefined ? {} : { entrypoint }) };
}

/** The whole pod. Pure; what cannot be was refused by refuseUnsupported. */
export function podOf(request: CreateRequest, settings: KubernetesSettings, owner?: V1OwnerReference): V1Pod {
  const { sandbox, tenant, run, spec } = request;
  const daemon = daemonMounts(settings);
  const data = dataMounts(request);
  const network = spec.network ?? "none";
  const main: V1Container = {
    name: MAIN_CONTAINER,
    image: spec.image,
    imagePullPolicy: settings.imagePullPolicy,
    command: [`${DAEMON_FOLDER}/sandmesh-agent`],
    env: [{ name: "SANDMESH_BOOTSTRAP", value: JSON.stringify(bootstrapOf(request, settings)) }],
    resources: resourcesOf(request, settings),
    securityContext: securityContext(request, settings),
    volumeMounts: [...daemon.mounts, ...data.mounts],
    ...(spec.cwd === undefined ? {} : { workingDir: spec.cwd }),
  };
  const secrets = [...settings.imagePullSecrets, ...(spec.image_pull_secrets ?? [])];
  const pod: V1Pod = {
    apiVersion: "v1",
    kind: "Pod",
    metadata: {
      name: sandbox,
      namespace: settings.namespace,
      ...(owner === undefined ? {} : { ownerReferences: [owner] }),
      labels: {
        ...spec.labels,
        [LABEL.managedBy]: "sandmesh",
        [LABEL.mesh]: settings.mesh,
        [LABEL.tenant]: tenant,
        [LABEL.run]: run,
        [LABEL.sandbox]: sandbox,
        [LABEL.network]: network.replace("policy:", "policy-"),
      },
    },
    spec: {
      restartPolicy: "Never",
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      terminationGracePeriodSeconds: Math.max(1, Math.round(settings.graceMs / 1000)),
      activeDeadlineSeconds: Math.min(2 ** 31 - 1, Math.max(1, Math.ceil(request.maxLifeMs / 1000))),
      securityContext: {
        seccompProfile: { type: "RuntimeDefault" },
        ...(settings.runAsNonRoot ? { runAsNonRoot: true } : {}),
      },
      initContainers: [...daemon.init, ...sidecars(request, settings)],
      containers: [main],
      volumes: [...daemon.volumes, ...data.volumes],
      ...(network === "host" ? { hostNetwork: true, dnsPolicy: "ClusterFirstWithHostNet" } : {}),
      ...(secrets.length === 0 ? {} : { imagePullSecrets: secrets.map((name) => ({ name })) }),
      ...(settings.runtimeClass === undefined ? {} : { runtimeClassName: settings.runtimeClass }),
      ...(settings.schedulerName === undefined ? {} : { schedulerName: settings.schedulerName }),
      ...(settings.priorityClass === undefined ? {} : { priorityClassName: settings.priorityClass }),
      nodeSelector: settings.nodeSelector,
      // The settings' schema leaves the words' meaning to the API server, which refuses what it does not know.
      tolerations: settings.tolerations,
    },
  };
  return settings.podTemplate === undefined ? pod : mergePatch(pod, settings.podTemplate);
}
