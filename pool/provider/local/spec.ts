// What of a spec this provider can do, decided before anything is made.
import { isAbsolute, normalize } from "node:path";
import { InvalidRequestError, type SandboxSpec, UnsupportedError } from "../../../broker/contract/index.ts";
import type { Controller } from "./cgroups.ts";
import { checkDisk } from "./disk.ts";
import { dataTypes, isData } from "./file-systems.ts";
import type { Plan } from "./launch/launcher.ts";
import { INSIDE } from "./layout.ts";
import type { Secrets } from "./secrets.ts";

/** What this process and machine can do. */
export interface Abilities {
  root: boolean;
  enforced: ReadonlySet<Controller>;
  disk: boolean;
}

const NEVER: readonly [keyof SandboxSpec, string][] = [
  ["image_pull_secrets", "it pulls no images"],
  ["sidecars", "a sandbox is one root file system"],
  ["extended_resources", "it has no device plugins"],
  ["template", "it keeps no warm stock"],
];

/** Throws UnsupportedError or InvalidRequestError, naming the field. */
export function refuseUnsupported(spec: SandboxSpec, secrets: Secrets): void {
  for (const [field, why] of NEVER) {
    const wish = spec[field];
    if (wish === undefined || (Array.isArray(wish) && wish.length === 0)) continue;
    if (typeof wish === "object" && Object.keys(wish).length === 0) continue;
    throw new UnsupportedError(`the local provider cannot do ${field}: ${why}`, { field: `spec.${field}` });
  }
  if (spec.network?.startsWith("policy:")) {
    throw new UnsupportedError(`the local provider knows the networks none and host, not ${spec.network}`, {
      field: "spec.network",
    });
  }
  checkDisk(spec);
  volumesOf(spec, secrets);
}

/** The spec's, as they were looked at. Throws InvalidRequestError. */
export const volumesOf = ({ volumes = [] }: SandboxSpec, secrets: Secrets): Plan["volumes"] =>
  volumes.map((volume, i) => checkVolume(volume, `spec.volumes.${i}`, secrets));

type Volume = NonNullable<SandboxSpec["volumes"]>[number];
/** What nothing of is shown in a sandbox: see file-systems.ts. */
const NO_DATA = "which is not known as a file system of data";
const TAKEN = ["/proc", "/sys", "/dev", INSIDE];

function checkVolume(
  { source, mount_path: target }: Volume,
  field: string,
  secrets: Secrets,
): Plan["volumes"][number] {
  const refuse = (which: string, why: string): never => {
    throw new InvalidRequestError(`${field}.${which} ${why}`, { field: `${field}.${which}` });
  };
  if (!isAbsolute(target) || normalize(`${target}/`) !== `${target.replace(/\/$/, "")}/` || target === "/") {
    refuse("mount_path", `must be an absolute, plain path other than /, not ${target}`);
  }
  if (TAKEN.some((path) => `${target}/`.startsWith(`${path}/`)))
    refuse("mount_path", `${target} is the sandbox's own`);
  if (!isAbsolute(source)) refuse("source", `must be an absolute path of a folder, not ${source}`);
  const found = secrets.look(source);
  if (!found?.isFolder) return refuse("source", `${source} is not a folder`);
  if (found.isSecret) refuse("source", `${source} is, holds or lies in the mesh's own state folder`);
  if (found.isOfServices())
    refuse("source", `${source} is, holds or lies in /run, where services have their sockets`);
  const known = dataTypes();
  const [own, ...inside] = found.mounts;
  if (own !== undefined && !isData(own.type, known))
    refuse("source", `${source} is on ${own.type}, ${NO_DATA}`);
  const other = inside.find(({ type }) => !isData(type, known));
  if (other !== undefined) {
    const point = Buffer.from(other.point, "latin1").toString();
    refuse("source", `${source} holds ${point}, where ${other.type} is mounted, ${NO_DATA}`);
  }
  return { source, identity: found.identity, target, field };
}

/** In a sandbox's `info` and in `doctor`, where it is to be no fault of the machine. */
const unasked = (field: string): string =>
  `shared: a sandbox has a limit only where it asks for one (${field})`;

/** What a sandbox of this spec (with the default limits) shares with others, in words. */
export function notIsolated(spec: SandboxSpec, { root, enforced, disk }: Abilities): string[] {
  const shared = ["the kernel: no system call filter, as in a container without seccomp"];
  if (root)
    shared.push("user ids: root inside is root outside, without the capabilities that reach the machine");
  else shared.push("user ids: everything inside is the mesh's own user outside, and there is no other user");
  if (spec.network === "host")
    shared.push("the network: the machine's own, with all it reaches and its abstract sockets");
  if (spec.image === "host")
    shared.push("files: all of the machine's root file system can be read (image host)");
  const wishes: Record<Controller, boolean> = {
    cpu: spec.cpu !== undefined,
    memory: spec.memory_bytes !== undefined,
    pids: spec.pids !== undefined,
  };
  const names: Record<Controller, string> = { cpu: "cpu", memory: "memory", pids: "processes" };
  const fields: Record<Controller, string> = { cpu: "cpu", memory: "memory_bytes", pids: "pids" };
  for (const controller of ["cpu", "memory", "pids"] as const) {
    if (!enforced.has(controller)) {
      shared.push(
        `${names[controller]}: ${wishes[controller] ? "the limit is not enforced" : "no limit"}, cgroups are not writable`,
      );
    } else if (!wishes[controller]) shared.push(`${names[controller]}: ${unasked(fields[controller])}`);
  }
  if (!disk) {
    const what = spec.disk_bytes === undefined ? "no limit" : "the limit is not enforced";
    shared.push(`disk: ${what}, it needs root`);
  } else if (spec.disk_bytes === undefined) shared.push(`disk: ${unasked("disk_bytes")}`);
  return shared;
}
