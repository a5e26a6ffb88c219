// Where a request's paths lead: all over the file system, or not out of a root. What is done with them gets a path that the
// kernel resolves, and that stays right while it is used.
import type { Stats } from "node:fs";
import { chmod, lstat, mkdir, readlink, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { errnoOf } from "../../broker/contract/index.ts";
import type { Folders } from "../native/folders.ts";
import { EEXIST, ENOTDIR, errno, fileFault } from "./error.ts";
import { leadsOut, type Pin, Root } from "./root.ts";

/** An entry of a folder, and not what that leads to, where it is a symlink; it need not be there. */
export interface Held extends Pin {
  /** It is in a file system of the kernel's own. */
  isKernels: boolean;
}

/** What lies below a folder that is open. */
export interface Below {
  /** The paths that it gives lead to what was found, which is no symlink, and not to what is there by its name. */
  isPinned: boolean;
  /** `act` with a path to what is at `path` below it; where that is pinned, no symlink led there. */
  reach<T>(path: string, act: (full: string) => Promise<T>): Promise<T>;
  /** Of a symlink itself, or ELOOP. */
  stat(path: string): Promise<Stats>;
  close(): Promise<void>;
}

/** Each throws FileError (EXDEV where a path leads out of the root) and errnos. */
export interface Ground {
  /** One for each path that may lead elsewhere. */
  name(path: string): string;
  /** What `path` leads to. */
  pin(path: string): Promise<Pin>;
  /** The entry at `path`. */
  hold(path: string): Promise<Held>;
  /** As mkdir -p; resolves to whether it was not there. */
  makeFolders(path: string): Promise<boolean>;
  /** `folder` is what `pin` gave. */
  below(folder: string): Promise<Below>;
}

/** Files of kernel file systems cannot be replaced by a rename, nor can their folders hold a draft. */
const KERNEL_FOLDER = /^\/(proc|sys)(\/|$)/;

type Act<T> = (at: string) => Promise<T>;

async function closing<T>(pin: Pin, act: Act<T>): Promise<T> {
  try {
    return await act(pin.at);
  } finally {
    await pin.close();
  }
}

/** `act` with a path to what `path` leads to. */
export const withTarget = async <T>(ground: Ground, path: string, act: Act<T>): Promise<T> =>
  await closing(await ground.pin(path), act);

/** `act` with a path to the entry at `path`. */
export const withEntry = async <T>(ground: Ground, path: string, act: Act<T>): Promise<T> =>
  await closing(await ground.hold(path), act);

/** Paths that end so name what a symlink leads to, whether or not it is to be followed. */
export const namesFolder = (path: string): boolean => /(^|\/)\.{0,2}$/.test(path);

export function openGround(cwd: string): Ground {
  const full = (path: string): string => (path.startsWith("/") ? path : `${cwd}/${path}`);
  return {
    name: full,
    pin: async (path) => ({ at: full(path), close: async () => {} }),
    hold: async (path) => ({
      at: full(path),
      isKernels: KERNEL_FOLDER.test(full(path)),
      close: async () => {},
    }),
    makeFolders: async (path) => (await mkdir(full(path), { recursive: true })) !== undefined,
    below: async (folder) => ({
      isPinned: false,
      reach: (path, act) => act(path === "" ? folder : `${folder}/${path}`),
      stat: (path) => lstat(`${folder}/${path}`),
      close: async () => {},
    }),
  };
}

/** What lies beneath `root`, itself a path of `around`, whose symlinks are followed; all paths are relative to it. */
export function groundBeneath(around: Ground, root: string, folders: Folders | undefined): Ground {
  const within = <T>(act: (open: Root) => Promise<T>): Promise<T> =>
    withTarget(around, root, async (at) => {
      const open = await Root.open(at, root, folders);
      try {
        return await act(open);
      } finally {
        await open.close();
      }
    });
  const pin = (path: string): Promise<Pin> => within((open) => open.pin(path, true));
  return {
    name: (path) => `${around.name(root)}\0${path}`,
    pin,
    hold: async (path) => {
      const { folder, name } = entryOf(path);
      if (DOTS.has(name)) {
        // That it leads out is to be told first.
        await (await pin(path)).close();
        throw fileFault(
          "EINVAL",
          `${path} is not the name of a file or folder; name it by the folder it is in`,
        );
      }
      const { at, close } = await pin(folder);
      const isKernels = KERNEL_FOLDER.test(await readlink(at));
      return { at: `${at}/${name}`, isKernels, close };
    },
    makeFolders: async (path) => {
      if (path.startsWith("/")) throw leadsOut(path, root);
      const names = path.split("/").filter((name) => name !== "" && name !== ".");
      return await within(async (open) => {
        let made = false;
        for (let depth = 1; depth <= names.length; depth++)
          made = await makeFolder(open, names.slice(0, depth), depth < names.length);
        return made;
      });
    },
    below: async (folder) => {
      const open = await Root.open(folder, root, folders);
      return {
        isPinned: true,
        reach: async (path, act) => await closing(await open.pin(path, false), act),
        stat: async (path) => await closing(await open.pin(path, false), (at) => stat(at)),
        close: () => open.close(),
      };
    },
  };
}

/** They must not stand behind an open folder: ".." would lead above that. */
const DOTS = new Set(["", ".", ".."]);

function entryOf(path: string): { folder: string; name: string } {
  const bare = path.replace(/\/+$/, "");
  const slash = bare.lastIndexOf("/");
  return { folder: slash < 0 ? "." : bare.slice(0, slash + 1), name: bare.slice(slash + 1) };
}

/** Whether it was not there. */
async function makeFolder(root: Root, names: readonly string[], isOnWay: boolean): Promise<boolean> {
  const path = names.join("/");
  const isThere = async (): Promise<boolean> => {
    const pin = await root.pin(path, true).catch((thrown: unknown) => {
      if (errnoOf(thrown) !== "ENOENT") throw thrown;
    });
    if (pin === undefined) return false;
    const isFolder = await closing(pin, async (at) => (await stat(at)).isDirectory());
    if (!isFolder) throw errno(isOnWay ? ENOTDIR : EEXIST);
    return true;
  };
  if (await isThere()) return false;
  const parent = await root.pin(names.slice(0, -1).join("/"), true);
  return await closing(parent, async (at) => {
    try {
      await mkdir(`${at}/${names.at(-1)}`);
      return true;
    } catch (thrown) {
      // Someone else was first; of a symlink that leads nowhere it is so, too.
      if (errnoOf(thrown) !== "EEXIST" || !(await isThere())) throw thrown;
      return false;
    }
  });
}

/** mkdir -p of what leads to `path`; a file on the way is ENOTDIR, not the EEXIST that mkdir(2) makes of it. */
export async function makeParents(ground: Ground, path: string): Promise<void> {
  try {
    await ground.makeFolders(dirname(path));
  } catch (thrown) {
    if (errnoOf(thrown) !== "EEXIST") throw thrown;
    throw fileFault("ENOTDIR", `cannot make the folders of ${path}: a part of the path is a file (ENOTDIR)`);
  }
}

/** With `parents`, missing folders on the way are made and an existing folder is fine, as mkdir -p. A mode is that of
 * the new folder exactly; the umask does not touch it. */
export async function makeFolderAt(
  ground: Ground,
  path: string,
  mode: number | undefined,
  parents: boolean,
): Promise<void> {
  if (parents) await makeParents(ground, path);
  let made = true;
  if (parents) made = await ground.makeFolders(path);
  else await withEntry(ground, path, (at) => mkdir(at));
  if (made && mode !== undefined) await withTarget(ground, path, (at) => chmod(at, mode));
}
