// Where files lie, whatever path leads there: by the file system that they are on and their path on it, so that a link, a
// bind mount or /proc/PID/root tells nothing of another place. Not seen is what a second file system shows of the same
// files: a network's, FUSE, an overlay above them, a snapshot.
import { closeSync, fstatSync, openSync, readFileSync, readlinkSync } from "node:fs";

/** Linux's: the file is not opened, only named, so that neither a fifo nor a missing right is in the way. */
const O_PATH = 0o10000000;

export interface Mount {
  id: number;
  device: string;
  /** Which folder of the device is mounted; all paths as bytes (latin1), since they need not be UTF-8. */
  root: string;
  point: string;
  type: string;
}

/** On a device: the path from its root. */
interface Place {
  device: string;
  path: string;
}

/** A file or folder that was looked at: `launch/outside.py` takes no other one for it. */
export interface Found {
  isFolder: boolean;
  /** Device and inode. */
  identity: string;
  /** Its own, and those of what is mounted below it. */
  places: Place[];
  /** Likewise. */
  mounts: Mount[];
}

/** What a path leads to; undefined where that is nothing, or cannot be reached by a path of this process's own mounts. */
export function find(path: string, all: readonly Mount[]): Found | undefined {
  let file: number;
  try {
    file = openSync(path, O_PATH);
  } catch {
    return undefined;
  }
  try {
    const info = fstatSync(file, { bigint: true });
    const holding = mountsOf(file, all);
    if (info.nlink === 0n || holding === undefined) return undefined;
    return { isFolder: info.isDirectory(), identity: `${info.dev}:${info.ino}`, ...holding };
  } finally {
    closeSync(file);
  }
}

/** Whether one holds, is or lies in another. */
export const overlap = (these: readonly Place[], those: readonly Place[]): boolean =>
  these.some((one) => those.some((other) => isWithin(one, other) || isWithin(other, one)));

/** Where services have their sockets (hier(7)): the folder, and what lies in memory below it, as users' own do. Not what a
 * disk below it holds (/run/media). */
export function ofServices(all: readonly Mount[]): Place[] {
  const folders = ["/run", "/var/run"].flatMap((path) => find(path, all) ?? []);
  return folders.flatMap(({ places: [own], mounts: [, ...inside] }) => {
    const inMemory = inside.filter(({ type }) => type === "tmpfs" || type === "ramfs");
    return [
      ...(own === undefined ? [] : [own]),
      ...inMemory.map(({ device, root }) => ({ device, path: root })),
    ];
  });
}

/** All paths by which a file or folder is to be had here, its own among them. */
export function pathsTo({ places }: Found, all: readonly Mount[]): string[] {
  const paths = all.flatMap((mount) =>
    places
      .filter((place) => isWithin(place, { device: mount.device, path: mount.root }))
      .map(({ path }) => under(mount.point, below(path, mount.root))),
  );
  return [...new Set(paths)].map((path) => Buffer.from(path, "latin1").toString());
}

const isWithin = (inner: Place, outer: Place): boolean =>
  inner.device === outer.device && isBelow(inner.path, outer.path);
const isBelow = (path: string, folder: string): boolean =>
  folder === "/" || path === folder || path.startsWith(`${folder}/`);
/** What comes after the folder, with its slash. */
const below = (path: string, folder: string): string => (folder === "/" ? path : path.slice(folder.length));
const under = (folder: string, rest: string): string =>
  folder === "/" ? rest || "/" : rest === "/" ? folder : `${folder}${rest}`;

function mountsOf(file: number, all: readonly Mount[]): Pick<Found, "places" | "mounts"> | undefined {
  const path = readlinkSync(`/proc/self/fd/${file}`, { encoding: "buffer" }).toString("latin1");
  const id = Number(/^mnt_id:\s*(\d+)$/m.exec(readFileSync(`/proc/self/fdinfo/${file}`, "utf8"))?.[1]);
  const own = all.find((mount) => mount.id === id);
  if (own === undefined || !isBelow(path, own.point)) return undefined;
  const place = { device: own.device, path: under(own.root, below(path, own.point)) };
  const inside = all.filter(({ point }) => point !== path && isBelow(point, path));
  const places = [place, ...inside.map(({ device, root }) => ({ device, path: root }))];
  return { places, mounts: [own, ...inside] };
}

/** What is mounted now (proc(5): id, parent, device, root, mount point, and after a dash the type). */
export function mounts(): Mount[] {
  const lines = readFileSync("/proc/self/mountinfo", "latin1").split("\n");
  return lines.flatMap((line) => {
    const [place = "", rest = ""] = line.split(" - ");
    const [id, , device, root, point] = place.split(" ");
    const [type = ""] = rest.split(" ");
    if (device === undefined || root === undefined || point === undefined) return [];
    return [{ id: Number(id), device, root: unescaped(root), point: unescaped(point), type }];
  });
}

/** Blanks, line ends and backslashes stand there as octal numbers. */
const unescaped = (text: string): string =>
  text.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
