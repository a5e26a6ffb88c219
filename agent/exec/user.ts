// Users of the image: a name or uid[:gid] to numbers, from the image's own /etc/passwd and /etc/group.
import { statSync } from "node:fs";
import { errnoOf } from "../../broker/contract/core.ts";
import { readText } from "../process/read-text.ts";

export interface User {
  uid: number;
  gid: number;
  /** Supplementary groups; always with `gid`. */
  groups: number[];
  name: string | undefined;
  home: string;
}

/** `fields` of each line of a file like /etc/passwd; none where there is no such file. */
function lines(path: string): string[][] {
  const text = readText(path) ?? "";
  return text.split("\n").map((line) => line.split(":"));
}

/** Ids are below 2^32 - 1, which setresuid takes as "leave it". */
const MAX_ID = 0xffff_fffe;
function number(text: string | undefined): number | undefined {
  if (text === undefined || !/^\d{1,10}$/.test(text)) return undefined;
  const value = Number(text);
  return value <= MAX_ID ? value : undefined;
}

/** A folder that the daemon itself may not enter is no home: without root on the machine, the image's /root is the
 * machine's root's, and a shell begins with an error. One that is not there stays, as with container engines. A file in
 * it is looked for, since access(2) grants what overlayfs then refuses. */
function homeOf(root: string, home: string): string {
  try {
    statSync(`${root}${home}/.profile`, { throwIfNoEntry: false });
  } catch (error) {
    if (errnoOf(error) === "EACCES") return "/tmp";
  }
  return home;
}

/** Resolves "name", "uid", "name:group", "uid:gid". Undefined where the image has no such name. As container engines
 * do: a uid without an entry has group 0, home "/" and no further groups; an explicit group is the only one. */
export function resolveUser(spec: string, root = ""): User | undefined {
  const colon = spec.indexOf(":");
  const who = colon < 0 ? spec : spec.slice(0, colon);
  const group = colon < 0 ? undefined : spec.slice(colon + 1);
  const passwd = lines(`${root}/etc/passwd`);
  const entry = passwd.find((f) => f[0] === who) ?? passwd.find((f) => f[2] === who);
  const uid = entry === undefined ? number(who) : number(entry[2]);
  if (uid === undefined || who === "") return undefined;
  const name = entry?.[0];
  const home = homeOf(root, entry?.[5] || "/");
  const allGroups = group === undefined && name === undefined ? [] : lines(`${root}/etc/group`);
  if (group !== undefined) {
    const gid = number(allGroups.find((f) => f[0] === group)?.[2] ?? group);
    return gid === undefined ? undefined : { uid, gid, groups: [gid], name, home };
  }
  const gid = number(entry?.[3]) ?? 0;
  const groups = new Set([gid]);
  for (const [, , id, members] of allGroups) {
    const value = number(id);
    if (value !== undefined && name !== undefined && members?.split(",").includes(name)) groups.add(value);
  }
  return { uid, gid, groups: [...groups], name, home };
}
