// The files of a virtual sandbox: in memory, made only when the first one is.
import { FileError, type FileStat, type ListDirAnswer } from "../../../broker/contract/index.ts";
import type { ByteSink, ByteSource, Files, WriteOptions } from "../../../broker/endpoint/executor.ts";
import { packTree, unpackSink } from "./tar.ts";

export interface MemoryFile {
  /** Undefined of a folder. */
  data: Uint8Array | undefined;
  mode: number;
  uid: number;
  gid: number;
  mtimeMs: number;
}

/** A virtual sandbox has a disk of this size; what does not fit is ENOSPC. */
export const DISK_BYTES = 64 * 1024 * 1024;

const failure = (reason: string, path: string): FileError => new FileError(`${reason}: ${path}`, { reason });

export class MemoryFiles implements Files {
  readonly nodes = new Map<string, MemoryFile>([["/", folder()]]);
  readonly #cwd: string;
  #used = 0;

  /** Relative paths start at `cwd`, an absolute one, which is made. */
  constructor(cwd = "/") {
    this.#cwd = "/";
    this.makeFolder(this.resolve(cwd), true);
    this.#cwd = this.resolve(cwd);
  }

  /** An absolute path without `.`, `..` and doubled slashes. */
  resolve(path: string, cwd = this.#cwd): string {
    const parts: string[] = [];
    for (const part of (path.startsWith("/") ? path : `${cwd}/${path}`).split("/")) {
      if (part === "..") parts.pop();
      else if (part !== "" && part !== ".") parts.push(part);
    }
    return `/${parts.join("/")}`;
  }

  isFolder(path: string): boolean {
    const node = this.nodes.get(path);
    return node !== undefined && node.data === undefined;
  }

  #node(path: string): MemoryFile {
    const node = this.nodes.get(path);
    if (node === undefined) throw failure("ENOENT", path);
    return node;
  }

  /** Throws FileError. */
  contents(path: string): Uint8Array {
    const { data } = this.#node(path);
    if (data === undefined) throw failure("EISDIR", path);
    return data;
  }

  async read(request: { path: string; offset: number; length?: number }): Promise<ByteSource> {
    const all = this.contents(this.resolve(request.path));
    const { offset, length = all.length } = request;
    return sourceOf(all.subarray(offset, offset + length));
  }

  async write(options: WriteOptions): Promise<ByteSink> {
    const path = this.resolve(options.path);
    this.#prepare(path, options.parents);
    const parts: Uint8Array[] = [];
    return {
      write: async (data) => {
        parts.push(new Uint8Array(data));
      },
      finish: async () => {
        const before = this.nodes.get(path)?.data;
        if (options.append && before !== undefined) parts.unshift(before);
        this.put(path, Buffer.concat(parts), options);
      },
      abort: async () => {},
    };
  }

  #prepare(path: string, parents: boolean): void {
    if (this.isFolder(path)) throw failure("EISDIR", path);
    this.#parent(path, parents);
  }

  #parent(path: string, make: boolean): void {
    const parent = this.resolve(`${path}/..`);
    const node = this.nodes.get(parent);
    if (node !== undefined && node.data !== undefined) throw failure("ENOTDIR", parent);
    if (node === undefined && !make) throw failure("ENOENT", parent);
    if (node === undefined) this.makeFolder(parent, true);
  }

  /** Makes or replaces a file. */
  put(
    path: string,
    data: Uint8Array,
    more: { mode?: number; uid?: number; gid?: number; mtimeMs?: number },
  ): void {
    this.#prepare(path, true);
    const before = this.nodes.get(path);
    const used = this.#used + data.length - (before?.data?.length ?? 0);
    if (used > DISK_BYTES) throw failure("ENOSPC", path);
    this.#used = used;
    const { mode = before?.mode ?? 0o644, uid = 0, gid = 0, mtimeMs = Date.now() } = more;
    this.nodes.set(path, { data, mode, uid, gid, mtimeMs });
  }

  makeFolder(path: string, parents: boolean, mode?: number): void {
    const node = this.nodes.get(path);
    if (node?.data !== undefined) throw failure("EEXIST", path);
    if (node !== undefined) {
      if (!parents) throw failure("EEXIST", path);
      return;
    }
    this.#parent(path, parents);
    this.nodes.set(path, folder(mode));
  }

  async stat(given: string): Promise<FileStat> {
    const path = this.resolve(given);
    return this.#stat(path, this.#node(path));
  }

  #stat(path: string, { data, mode, uid, gid, mtimeMs }: MemoryFile): FileStat {
    const type = data === undefined ? "dir" : "file";
    return { path, type, size: data?.length ?? 0, mode, uid, gid, mtime_ms: mtimeMs };
  }

  /** What stands below a folder, by path. */
  below(path: string): [string, MemoryFile][] {
    const prefix = path === "/" ? "/" : `${path}/`;
    const found = [...this.nodes].filter(([each]) => each !== path && each.startsWith(prefix));
    return found.sort(([a], [b]) => (a < b ? -1 : 1));
  }

  async list(given: string, after: string | undefined, limit: number): Promise<ListDirAnswer> {
    const path = this.resolve(given);
    if (this.#node(path).data !== undefined) throw failure("ENOTDIR", path);
    const length = path === "/" ? 1 : path.length + 1;
    const entries = this.below(path)
      .filter(([each]) => !each.slice(length).includes("/") && each.slice(length) > (after ?? ""))
      .map(([each, node]) => ({ ...this.#stat(each, node), path: each.slice(length) }));
    return { entries: entries.slice(0, limit), more: entries.length > limit };
  }

  async remove(given: string, recursive: boolean, missingOk: boolean): Promise<void> {
    const path = this.resolve(given);
    if (path === "/") throw failure("EBUSY", path);
    if (missingOk && !this.nodes.has(path)) return;
    const node = this.#node(path);
    const below = node.data === undefined ? this.below(path) : [];
    if (node.data === undefined && !recursive) throw failure("EISDIR", path);
    for (const [each, { data }] of [...below, [path, node] as const]) {
      this.#used -= data?.length ?? 0;
      this.nodes.delete(each);
    }
  }

  async mkdir(path: string, mode: number | undefined, parents: boolean): Promise<void> {
    this.makeFolder(this.resolve(path), parents, mode);
  }

  async rename(fromGiven: string, toGiven: string): Promise<void> {
    const [from, to] = [this.resolve(fromGiven), this.resolve(toGiven)];
    const node = this.#node(from);
    if (to === from) return;
    if (from === "/" || to.startsWith(`${from}/`)) throw failure("EINVAL", to);
    if (this.isFolder(to)) throw failure("EISDIR", to);
    this.#parent(to, false);
    this.#used -= this.nodes.get(to)?.data?.length ?? 0;
    for (const [each, moved] of [...this.below(from), [from, node] as const]) {
      this.nodes.delete(each);
      this.nodes.set(to + each.slice(from.length), moved);
    }
  }

  async pack(given: string): Promise<ByteSource> {
    const path = this.resolve(given);
    return sourceOf(await packTree(path, this.#node(path), this.below(path)));
  }

  async unpack(given: string): Promise<ByteSink> {
    const path = this.resolve(given);
    if (!this.isFolder(path)) this.makeFolder(path, true);
    return unpackSink(this, path);
  }

  beneath(root: string): Files {
    return new FilesBeneath(this, this.resolve(root));
  }
}

/** There are no symlinks in memory: that a path leads out its text tells. */
class FilesBeneath implements Files {
  readonly #files: MemoryFiles;
  readonly #root: string;

  constructor(files: MemoryFiles, root: string) {
    this.#files = files;
    this.#root = root;
  }

  #at(path: string): string {
    const at = this.#files.resolve(path, this.#root);
    let depth = 0;
    for (const part of path.split("/")) {
      if (part === "..") depth--;
      else if (part !== "" && part !== ".") depth++;
      if (depth < 0 || path.startsWith("/")) throw failure("EXDEV", path);
    }
    return at;
  }

  read: Files["read"] = async (request) =>
    await this.#files.read({ ...request, path: this.#at(request.path) });
  write: Files["write"] = async (options) =>
    await this.#files.write({ ...options, path: this.#at(options.path) });
  stat: Files["stat"] = async (path) => ({ ...(await this.#files.stat(this.#at(path))), path });
  list: Files["list"] = async (path, after, limit) => await this.#files.list(this.#at(path), after, limit);
  remove: Files["remove"] = async (path, recursive, missingOk) =>
    await this.#files.remove(this.#at(path), recursive, missingOk);
  mkdir: Files["mkdir"] = async (path, mode, parents) =>
    await this.#files.mkdir(this.#at(path), mode, parents);
  rename: Files["rename"] = async (from, to) => await this.#files.rename(this.#at(from), this.#at(to));
  pack: Files["pack"] = async (path) => await this.#files.pack(this.#at(path));
  unpack: Files["unpack"] = async (path) => await this.#files.unpack(this.#at(path));
  beneath = (root: string): Files => new FilesBeneath(this.#files, this.#at(root));
}

function folder(mode = 0o755): MemoryFile {
  return { data: undefined, mode, uid: 0, gid: 0, mtimeMs: Date.now() };
}

function sourceOf(data: Uint8Array): ByteSource {
  let at = 0;
  return {
    size: data.length,
    read: async (max) => {
      if (at >= data.length) return undefined;
      const part = data.subarray(at, at + max);
      at += part.length;
      return part;
    },
    close: async () => {},
  };
}
