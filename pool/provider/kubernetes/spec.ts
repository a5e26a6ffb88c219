// What of a spec Kubernetes can do, what it cannot, by field, and what it leaves open, in words.
import {
  ID_PATTERN,
  ImageError,
  InvalidRequestError,
  type SandboxSpec,
  UnsupportedError,
} from "../../../broker/contract/index.ts";
import type { KubernetesSettings } from "./settings.ts";

/** github.com/distribution/reference, its grammar without the bound on length. */
const DOMAIN =
  "(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?(?:\\.[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?)*|\\[[0-9a-fA-F:]+\\])(?::[0-9]+)?";
const PART = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*";
const REFERENCE = new RegExp(
  `^(?:${DOMAIN}/)?${PART}(?:/${PART})*(?::[\\w][\\w.-]{0,127})?(?:@[A-Za-z][A-Za-z0-9]*:[0-9a-fA-F]{32,})?$`,
);
const LABEL_VALUE = /^(?:[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?)?$/;
const LABEL_KEY = /^(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?\/)?[A-Za-z0-9](?:[\w.-]{0,61}[A-Za-z0-9])?$/;

/** `uid` or `uid:gid`. Names are the image's, which nobody reads before the pod runs. */
export function parseUser(user: string): { uid: number; gid: number | undefined } | undefined {
  const match = user.match(/^(\d{1,10})(?::(\d{1,10}))?$/);
  if (match === null) return undefined;
  return { uid: Number(match[1]), gid: match[2] === undefined ? undefined : Number(match[2]) };
}

/** What the image starts by itself, as far as the settings say: by its whole name, or by that without tag and digest. */
export function entrypointOf(
  image: string,
  { entrypoints }: Pick<KubernetesSettings, "entrypoints">,
): string[] | undefined {
  const repository = image.replace(/@.*$/, "").replace(/:[^/:]*$/, "");
  const name = [image, repository].find((each) => Object.hasOwn(entrypoints, each));
  return name === undefined ? undefined : entrypoints[name];
}

export interface VolumeSource {
  kind: "claim" | "image" | "hostPath";
  value: string;
}

/** `image:<reference>`, `hostPath:/folder`, or the name of a persistent volume claim. */
export function parseVolume(source: string): VolumeSource {
  const match = source.match(/^(image|hostPath|claim):(.+)$/s);
  if (match === null) return { kind: "claim", value: source };
  const [, kind, value = ""] = match;
  return { kind: kind === "image" ? "image" : kind === "hostPath" ? "hostPath" : "claim", value };
}

const unsupported = (field: string, why: string): never => {
  throw new UnsupportedError(`${field}: ${why}`, { field });
};

function checkImage(image: string, field: string): void {
  if (REFERENCE.test(image) && image.length <= 1024) return;
  throw new ImageError(`${field}: ${JSON.stringify(image)} is no image reference`, { field });
}

/** Throws UnsupportedError, ImageError or InvalidRequestError with the field. Nothing is asked of the cluster. */
export function refuseUnsupported(spec: SandboxSpec, settings: KubernetesSettings): void {
  checkImage(spec.image, "spec.image");
  if (spec.pids !== undefined) {
    unsupported("spec.pids", "a pod has no limit of its own; kubelet's podPidsLimit holds for all of a node");
  }
  if (spec.entrypoint === true && entrypointOf(spec.image, settings) === undefined) {
    unsupported(
      "spec.entrypoint",
      `what ${spec.image} starts is known to its registry alone, which is not asked, and is not among this pool's settings (entrypoints)`,
    );
  }
  if (spec.user !== undefined && parseUser(spec.user) === undefined) {
    unsupported("spec.user", "must be a uid or uid:gid; Kubernetes knows no user names");
  }
  for (const [name, value] of Object.entries(spec.env ?? {})) {
    if (value === null) unsupported(`spec.env.${name}`, "the image's variables cannot be taken away here");
  }
  if (spec.network === "host" && !settings.allowHostNetwork) {
    unsupported("spec.network", "host is not allowed by this pool's settings (allowHostNetwork)");
  }
  for (const [key, value] of Object.entries(spec.labels ?? {})) checkLabel(key, value);
  spec.volumes?.forEach((volume, i) => void checkVolume(volume, `spec.volumes.${i}`, settings));
  const names = new Set(["sandbox", "sandmesh-daemon"]);
  spec.sidecars?.forEach(({ name, image }, i) => {
    if (names.has(name)) unsupported(`spec.sidecars.${i}.name`, `${name} is taken`);
    names.add(name);
    checkImage(image, `spec.sidecars.${i}.image`);
  });
}

function checkLabel(key: string, value: string): void {
  const field = `spec.labels.${key}`;
  if (key.startsWith("sandmesh.dev/") || key === "app.kubernetes.io/managed-by") {
    throw new InvalidRequestError(`${field}: is sandmesh's own`, { field });
  }
  if (!LABEL_KEY.test(key) || !LABEL_VALUE.test(value)) {
    throw new InvalidRequestError(`${field}: is no label of Kubernetes`, { field });
  }
}

type Volume = NonNullable<SandboxSpec["volumes"]>[number];

function checkVolume(
  { source, mount_path: path }: Volume,
  field: string,
  settings: KubernetesSettings,
): void {
  if (!path.startsWith("/") || path === "/" || path.includes(":") || `${path}/`.startsWith("/.sandmesh/")) {
    throw new InvalidRequestError(`${field}.mount_path: ${path} cannot be mounted on`, {
      field: `${field}.mount_path`,
    });
  }
  const { kind, value } = parseVolume(source);
  if (kind === "image") {
    checkImage(value, `${field}.source`);
    return;
  }
  if (kind === "claim") {
    if (!/^[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?$/.test(value)) {
      throw new InvalidRequestError(`${field}.source: ${value} is no claim's name`, {
        field: `${field}.source`,
      });
    }
    return;
  }
  const allowed = settings.hostPaths.some((root) => `${value}/`.startsWith(`${root.replace(/\/$/, "")}/`));
  if (!allowed || value.split("/").includes("..")) {
    unsupported(
      `${field}.source`,
      `${value} is not among the folders that this pool's settings allow (hostPaths)`,
    );
  }
}

/** A sandbox's id is its pod's name, and names the host as well. Throws InvalidRequestError. */
export function checkName(sandbox: string): void {
  if (ID_PATTERN.test(sandbox) && !sandbox.endsWith("-")) return;
  throw new InvalidRequestError(`${JSON.stringify(sandbox)} cannot name a pod`, { field: "sandbox" });
}

/** What a pod of this spec shares with others, in words. */
export function notIsolated(spec: SandboxSpec, settings: KubernetesSettings): string[] {
  const shared: string[] = [];
  if (settings.runtimeClass === undefined) {
    shared.push("the kernel: the node's own, behind the runtime's system call filter (RuntimeDefault)");
  }
  if (spec.network === "host") shared.push("the network: the node's own");
  else
    shared.push(
      "the network: as far as the cluster enforces network policies for the label sandmesh.dev/network",
    );
  if (spec.cpu === undefined) shared.push("cpu: no limit was asked for");
  if (spec.memory_bytes === undefined) shared.push("memory: no limit was asked for");
  if (spec.disk_bytes === undefined) shared.push("disk: no limit was asked for");
  if (settings.capabilities === "root-tools") shared.push("privileges: programs with setuid gain root's");
  return shared;
}
