// What this machine can do for local sandboxes, for `sandmesh doctor`.
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { release } from "node:os";
import { dirname, join } from "node:path";
import { CONTROLLERS, type Controller, detect, type Hierarchy } from "./cgroups.ts";
import { diskNeeds } from "./disk.ts";
import { countsByNamespace, Limits } from "./limits.ts";
import { findPython } from "./python.ts";
import { notIsolated } from "./spec.ts";

export interface Check {
  check: string;
  ok: boolean;
  detail: string;
  fix?: string;
}

/** Each check tries the thing itself. Where `stateDir` is not there yet, its nearest folder that is; nothing is left. */
export async function diagnose(stateDir: string): Promise<Check[]> {
  const tried = [kernel(), privilege(), await python(), await namespaces(), await overlay(stateDir)];
  return [...tried, ...cgroups(), ...shared()];
}

/** What a sandbox of image host that asks for nothing shares with others, in the words of its `info`. */
function shared(): Check[] {
  const root = process.getuid?.() === 0;
  const limits = new Limits(new Set(detect().flatMap(({ controllers }) => controllers)), root);
  const { enforced, disk } = limits;
  return notIsolated(limits.of({ image: "host" }), { root, enforced, disk }).map((words) => {
    const [, what = words, detail = ""] = /^(.*?): (.*)$/s.exec(words) ?? [];
    return { check: `isolation of ${what}`, ok: false, detail };
  });
}

function kernel(): Check {
  const [major = 0, minor = 0] = release().split(".").map(Number);
  const ok = major > 5 || (major === 5 && minor >= 11);
  const check: Check = { check: "kernel", ok, detail: release() };
  if (!ok) check.fix = "5.11 or newer is needed for overlayfs in user namespaces";
  return check;
}

function privilege(): Check {
  const uid = process.getuid?.();
  return uid === 0
    ? { check: "privilege", ok: true, detail: "root" }
    : {
        check: "privilege",
        ok: true,
        detail: `uid ${uid}: in user namespaces; inside there is one user, shown as root, and root-owned files of the image are read-only`,
        fix: "run the mesh as root for sandboxes with several users and writable system folders",
      };
}

async function python(): Promise<Check> {
  try {
    return { check: "python", ok: true, detail: await findPython() };
  } catch (error) {
    return {
      check: "python",
      ok: false,
      detail: (error as Error).message,
      fix: "install python3 (3.9 or newer)",
    };
  }
}

/** Runs `script` with the launcher's own calls; its complaint, or "" where all went well. */
async function tryCalls(script: string): Promise<string> {
  try {
    const prelude = `import os, sys; sys.dont_write_bytecode = True; sys.path.insert(0, ${JSON.stringify(join(import.meta.dir, "launch"))})\nimport kernel as k, launcher\n`;
    const child = Bun.spawn([await findPython(), "-I", "-c", prelude + script], {
      stdout: "ignore",
      stderr: "pipe",
    });
    const [complaint, code] = await Promise.all([new Response(child.stderr).text(), child.exited]);
    return code === 0 ? "" : (complaint.trim().split("\n").pop() ?? "failed");
  } catch (error) {
    return (error as Error).message;
  }
}

const UNSHARE = `uid, gid = os.getuid(), os.getgid()
k.unshare((k.CLONE_NEWUSER if uid else 0) | k.CLONE_NEWNS | k.CLONE_NEWPID | k.CLONE_NEWIPC | k.CLONE_NEWUTS | k.CLONE_NEWNET)
if uid: launcher.map_to_root(uid, gid)
k.mount(None, "/", None, k.MS_REC | k.MS_PRIVATE)
k.loopback_up()
`;

async function namespaces(): Promise<Check> {
  const complaint = await tryCalls(UNSHARE);
  if (complaint === "") return { check: "namespaces", ok: true, detail: "mount, pid, ipc, uts, network" };
  return {
    check: "namespaces",
    ok: false,
    detail: complaint,
    fix: "run as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1, user.max_user_namespaces, kernel.apparmor_restrict_unprivileged_userns=0)",
  };
}

async function overlay(stateDir: string): Promise<Check> {
  let above = stateDir;
  while (!existsSync(above)) above = dirname(above);
  let folder: string;
  try {
    folder = await mkdtemp(join(above, ".doctor-"));
  } catch (error) {
    const fix = "make the mesh's folder writable, or name another by SANDMESH_HOME";
    return { check: "overlayfs", ok: false, detail: `${above}: ${(error as Error).message}`, fix };
  }
  try {
    const unprivileged = process.getuid?.() !== 0;
    const lower = unprivileged ? "/usr" : "/";
    const options = `lowerdir=${lower},upperdir=upper,workdir=work${unprivileged ? ",userxattr" : ""}`;
    const script = `${UNSHARE}os.chdir(${JSON.stringify(folder)})
for d in ("upper", "work", "root"): os.mkdir(d)
k.mount("overlay", "root", "overlay", 0, ${JSON.stringify(options)})
k.unmount_detached("root")
`;
    const complaint = await tryCalls(script);
    if (complaint === "") {
      return {
        check: "overlayfs",
        ok: true,
        detail: `${lower} below, ${stateDir} above; folders mounted below / are not in image host`,
      };
    }
    return {
      check: "overlayfs",
      ok: false,
      detail: complaint,
      fix: "put the state folder on ext4, xfs, btrfs or tmpfs; within a container, on a volume",
    };
  } finally {
    const run = (...argv: string[]) => Bun.spawn(argv, { stderr: "ignore" }).exited;
    await run("chmod", "-R", "u+rwX", folder);
    await rm(folder, { recursive: true, force: true });
  }
}

const FIX = "run as root, or as a systemd user unit with Delegate=yes";

function cgroups(): Check[] {
  const found = detect();
  return [...CONTROLLERS.map((controller) => limit(found, controller)), disk(), wholeTrees(found)];
}

function limit(found: readonly Hierarchy[], controller: Controller): Check {
  const hierarchy = found.find((h) => h.controllers.includes(controller));
  const check = `limit of ${controller}`;
  if (hierarchy === undefined && controller === "pids" && process.getuid?.() !== 0 && countsByNamespace())
    return { check, ok: true, detail: "RLIMIT_NPROC in the sandbox's own user namespace" };
  if (hierarchy !== undefined)
    return { check, ok: true, detail: `cgroup v${hierarchy.version}, ${hierarchy.base}` };
  return {
    check,
    ok: false,
    detail: "no writable cgroup: this limit is not enforced",
    fix: FIX,
  };
}

function disk(): Check {
  const check = "limit of disk";
  const needs = diskNeeds(process.getuid?.() === 0);
  if (needs === undefined)
    return { check, ok: true, detail: "a file system in a file, for who asks (disk_bytes)" };
  return { check, ok: false, detail: `not enforced without ${needs}`, fix: `run with ${needs}` };
}

/** By version 2 alone: of version 1 nothing ends a group at once. */
function wholeTrees(found: readonly Hierarchy[]): Check {
  const check = "end of a command's whole tree";
  const hierarchy = found.find(({ version }) => version === 2);
  if (hierarchy !== undefined) return { check, ok: true, detail: `cgroup.kill, ${hierarchy.base}` };
  return {
    check,
    ok: false,
    detail:
      "no writable cgroup v2: what leaves a command's session, parents and environment outlives its time limit, until the sandbox ends",
    fix: FIX,
  };
}
