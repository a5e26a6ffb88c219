// Files of a sandbox. Paths are the sandbox's; relative ones start at its working folder.
import {
  FileError,
  type FileStat,
  type HashAnswer,
  newUuidV7,
  type SearchAnswer,
} from "../../../broker/contract/index.ts";
import { bytesOf, given, invalid, isIterable, nothingElse, onlySignal } from "../arguments.ts";
import { defined } from "../spec.ts";
import type { Box } from "../wire/box.ts";
import { type Part, partsOf, piecesUntil, type Source } from "../wire/parts.ts";
import { orReconnect } from "../wire/reconnect.ts";
import { sendParts } from "../wire/sending.ts";
import type { Skipped } from "./pack.ts";
import { abortTransfer, look, type ReadRange, readAll, readFrames } from "./read.ts";
import { type CopyOptions, download, upload } from "./trees.ts";
import { type FileChange, watchFolder } from "./watch.ts";

export interface Abortable {
  signal?: AbortSignal;
}

export type Content = string | Uint8Array | AsyncIterable<string | Uint8Array> | Iterable<Uint8Array>;

export interface WriteOptions extends Abortable {
  /** Permission bits, such as 0o755; default the old file's, or 0o644. */
  mode?: number;
  uid?: number;
  gid?: number;
  /** Milliseconds since the epoch. */
  mtimeMs?: number;
  /** Add to what is there, in parts of at most 256 KiB; each is sent once only, since twice would add twice. */
  append?: boolean;
  /** Make missing folders; default true. */
  parents?: boolean;
  /** Return when it is on the disk. */
  fsync?: boolean;
}

export interface SearchOptions extends Abortable {
  ignoreCase?: boolean;
  /** Only files whose path below the folder matches: such as `src/*.{ts,py}`. */
  files?: string;
  /** Also names that begin with a dot. */
  hidden?: boolean;
  /** At most this many lines, 1 to 1,000 (default). */
  limit?: number;
}

const PAGE = 1_000;
/** Reading a large file takes its time, as does removing a large tree. */
const LARGE_MS = 600_000;
/** The sandbox ends a look-around after 20 s. */
const LOOK_MS = 40_000;

/** Each of these throws FileError (`reason`: ENOENT, EACCES, …), and what a lost sandbox throws. */
export class Files {
  readonly #box: Box;
  /** With what each request that names files begins. */
  readonly #beneath: { root?: string };

  /** Internal: see `Sandbox.files`. */
  constructor(box: Box, root?: string) {
    this.#box = box;
    this.#beneath = defined({ root });
  }

  /** The files below a folder of the sandbox: all paths are relative to it, and none leaves it, neither by `..` nor by a
   * symlink, whatever the sandbox's programs swap meanwhile. One that would is a FileError with the reason EXDEV, as is an
   * absolute path or link (RESOLVE_BENEATH of openat2(2)). Hard links and mounts do lead out. The folder's own path may hold
   * symlinks; it is looked up for each call. */
  beneath(root: string): Files {
    if (typeof root !== "string" || root === "") throw invalid("root", "must be a path of the sandbox");
    const { root: above } = this.#beneath;
    if (above === undefined) return new Files(this.#box, root);
    throw invalid("root", `these files are beneath ${above} already`);
  }

  /** A file's bytes, or a range of them, in memory. Throws FileError with the reason ESTALE where the file became shorter
   * meanwhile. */
  read(path: string, options: ReadRange & Abortable = {}): Promise<Uint8Array> {
    const { offset, length, signal, ...rest } = given(options);
    nothingElse(rest);
    return readAll(this.#box, defined({ ...this.#beneath, path, offset, length }), signal);
  }

  /** A file as UTF-8; bytes that are none become U+FFFD. */
  async readText(path: string, options: Abortable = {}): Promise<string> {
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(await this.read(path, options));
  }

  /** A file's bytes as they come, with constant memory. Throws ConnectionError where it was cut off, and FileError with the
   * reason ESTALE where the file became shorter meanwhile: what came never stood in it. */
  readStream(path: string, options: ReadRange & Abortable = {}): AsyncIterable<Uint8Array> {
    const { offset, length, signal, ...rest } = given(options);
    nothingElse(rest);
    const request = defined({ ...this.#beneath, path, offset, length });
    return readFrames(this.#box, "read", request, signal);
  }

  /** Writes a file whole: it appears, or replaces the old one, at the end and at once. Resolves to its bytes. What ends it
   * before, the signal among it, is told at once, and to an iterable of the caller's by its iterator's `return`. */
  async write(path: string, content: Content, options: WriteOptions = {}): Promise<number> {
    const { signal, mtimeMs, mode, uid, gid, append, parents, fsync, ...rest } = given(options);
    nothingElse(rest);
    const request = defined({
      ...this.#beneath,
      path,
      mtime_ms: mtimeMs,
      mode,
      uid,
      gid,
      append,
      parents,
      fsync,
    });
    if (append === true) return await this.#append(request, content, signal);
    return await this.#transfer("write", request, sourceOf(content), signal);
  }

  async #append(
    request: { path: string },
    content: Content,
    signal: AbortSignal | undefined,
  ): Promise<number> {
    return await this.#box.whileHere(signal, async (either) => {
      let sent = 0;
      for await (const part of partsOf(piecesUntil<string | Uint8Array>(sourceOf(content), either))) {
        // One part is one append, and each is sent once: an answer that is lost is told, not guessed.
        await this.#box.call("write", { ...request, data: part.data }, { once: true, signal: either });
        sent += part.data.length;
      }
      return sent;
    });
  }

  async #transfer(
    verb: "write" | "unpack",
    request: { path: string },
    source: Source,
    signal: AbortSignal | undefined,
    onBegin?: () => void,
  ): Promise<number> {
    const { pulse } = this.#box;
    const transfer = newUuidV7();
    let begun = false;
    const send = (part: Part, stop: AbortSignal) => {
      if (!begun) onBegin?.();
      begun = true;
      const options = { once: true, timeoutMs: 20_000, absentMs: 0 };
      return orReconnect(pulse, stop, (either) =>
        this.#box.call(verb, { ...request, transfer, ...part }, { ...options, signal: either }),
      );
    };
    try {
      return await this.#box.whileHere(signal, (either) =>
        sendParts(source, { signal: either, send: (part) => send(part, either) }),
      );
    } catch (error) {
      // Untouched ones are thrown away by the sandbox anyway; this is only sooner.
      if (begun) abortTransfer(this.#box, transfer);
      throw error;
    }
  }

  /** What is at a path; with `follow: false` of a symlink itself. */
  stat(path: string, options: { follow?: boolean } & Abortable = {}): Promise<FileStat> {
    const { signal, follow, ...rest } = given(options);
    nothingElse(rest);
    return this.#box.call("stat", defined({ ...this.#beneath, path, follow }), { signal });
  }

  /** Whether something is at a path. */
  async exists(path: string, options: Abortable = {}): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (error) {
      if (error instanceof FileError && (error.reason === "ENOENT" || error.reason === "ENOTDIR"))
        return false;
      throw error;
    }
  }

  /** A folder's entries, by name. */
  async list(path: string, options: Abortable = {}): Promise<FileStat[]> {
    const entries: FileStat[] = [];
    for (let after: string | undefined; ; ) {
      const request = defined({ ...this.#beneath, path, after, limit: PAGE });
      const asked = { ...onlySignal(options), againAfterMs: LOOK_MS };
      const page = await look(this.#box, (transfer) =>
        this.#box.call("list", { ...request, transfer }, asked),
      );
      entries.push(...page.entries);
      after = page.entries.at(-1)?.path.split("/").at(-1);
      if (!page.more || after === undefined) return entries;
    }
  }

  /** Removes a file, or with `recursive` a folder; never follows a symlink. What is aborted may have removed some. */
  async remove(
    path: string,
    options: { recursive?: boolean; missingOk?: boolean } & Abortable = {},
  ): Promise<void> {
    const { recursive, missingOk, signal, ...rest } = given(options);
    nothingElse(rest);
    const request = defined({ ...this.#beneath, path, recursive, missing_ok: missingOk });
    const asked = { signal, ...(recursive === true && { timeoutMs: LARGE_MS }) };
    await look(this.#box, (transfer) => this.#box.call("remove", { ...request, transfer }, asked));
  }

  /** Makes a folder, and with `parents` (default) what leads to it. */
  async mkdir(path: string, options: { mode?: number; parents?: boolean } & Abortable = {}): Promise<void> {
    const { signal, mode, parents, ...rest } = given(options);
    nothingElse(rest);
    await this.#box.call("mkdir", defined({ ...this.#beneath, path, mode, parents }), { signal });
  }

  async rename(from: string, to: string, options: Abortable = {}): Promise<void> {
    await this.#box.call("rename", { ...this.#beneath, from, to }, onlySignal(options));
  }

  /** A file or folder as a tar stream (pax), without fifos, sockets and devices. Throws FileError with the reason ESTALE,
   * which names the file, where one became shorter while it was read. */
  pack(path: string, options: Abortable & { skipped?: Skipped } = {}): AsyncIterable<Uint8Array> {
    const { signal, skipped, ...rest } = given(options);
    nothingElse(rest);
    return readFrames(this.#box, "pack", { ...this.#beneath, path }, signal, (end) => {
      for (const each of end.skipped ?? []) skipped?.(each, end.skipped_count ?? 0);
    });
  }

  /** A tar stream into a folder, which is made where it is missing. No entry leaves it, by name or by link. With
   * `owner`, uid and gid are kept. `begun` is called before the first part is sent. Throws FileError, with `started:
   * "no"` where nothing was written. */
  async unpack(
    path: string,
    tar: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
    options: { owner?: boolean; begun?: () => void } & Abortable = {},
  ): Promise<number> {
    const { signal, owner, begun, ...rest } = given(options);
    nothingElse(rest);
    const request = defined({ ...this.#beneath, path, owner });
    return await this.#transfer("unpack", request, sourceOf(tar), signal, begun);
  }

  /** A file's sha256 in hexadecimal and its size, without transferring it. */
  sha256(path: string, options: Abortable = {}): Promise<HashAnswer> {
    // Asked again only where the connection was cut: it is dear.
    const asked = { ...onlySignal(options), againAfterMs: LARGE_MS, timeoutMs: LARGE_MS };
    const request = { ...this.#beneath, path };
    return look(this.#box, (transfer) => this.#box.call("hash", { ...request, transfer }, asked));
  }

  /** Sets permission bits, such as 0o755. */
  async chmod(path: string, mode: number, options: Abortable = {}): Promise<void> {
    if (typeof mode !== "number") throw invalid("mode", "must be a number, such as 0o755");
    await this.#box.call("attributes", { ...this.#beneath, path, mode }, onlySignal(options));
  }

  /** Sets owner and group; what is left out stays. With `follow: false` of a symlink itself. */
  async chown(
    path: string,
    owner: { uid?: number; gid?: number; follow?: boolean },
    options: Abortable = {},
  ): Promise<void> {
    const { uid, gid, follow, ...rest } = given(owner, "owner");
    nothingElse(rest);
    if (uid === undefined && gid === undefined) throw invalid("owner", "must name a uid or a gid");
    const request = defined({ ...this.#beneath, path, uid, gid, follow });
    await this.#box.call("attributes", request, onlySignal(options));
  }

  /** Paths below `folder` that match `pattern` (`*` and `?` within a name, `**` for any depth, `[abc]`, `{a,b}`), in
   * order. Symlinks are told and not followed, other file systems below not entered. */
  async glob(
    pattern: string,
    options: { folder?: string; hidden?: boolean } & Abortable = {},
  ): Promise<string[]> {
    const { folder: path = ".", hidden, signal, ...rest } = given(options);
    nothingElse(rest);
    const paths: string[] = [];
    for (let from: { cursor?: string; after?: string } = { cursor: "" }; ; ) {
      const request = { ...this.#beneath, ...defined({ path, pattern, hidden }), ...from };
      const asked = { signal, timeoutMs: LOOK_MS, againAfterMs: LOOK_MS };
      const page = await look(this.#box, (transfer) =>
        this.#box.call("glob", { ...request, transfer }, asked),
      );
      paths.push(...page.paths);
      const { more, cursor } = page;
      const after = page.paths.at(-1);
      if (!more || (cursor ?? after) === undefined) return paths;
      // A daemon of before knows no cursor.
      from = defined(cursor === undefined ? { after } : { cursor });
    }
  }

  /** Lines that contain `text` (no pattern language) in the files below a folder, or in one file; `more` says whether
   * there may be others. Binary files are left out. */
  search(text: string, path = ".", options: SearchOptions = {}): Promise<SearchAnswer> {
    const { signal, ignoreCase, files, hidden, limit, ...rest } = given(options);
    nothingElse(rest);
    const request = defined({ ...this.#beneath, path, text, ignore_case: ignoreCase, files, hidden, limit });
    const asked = { signal, timeoutMs: LOOK_MS, againAfterMs: LOOK_MS };
    return look(this.#box, (transfer) => this.#box.call("search", { ...request, transfer }, asked));
  }

  /** What changes below a folder, from the moment that the first step of the loop has begun on; leaving the loop ends
   * it. Each path once per burst of changes; `overflow`: more than could be remembered, look for yourself. */
  watch(path: string, options: { recursive?: boolean } & Abortable = {}): AsyncIterable<FileChange> {
    return watchFolder(this.#box, { ...this.#beneath, path }, options);
  }

  /** A file or folder of this machine to `remote` (the new name, not the folder to put it in), with modes, links and
   * times (to the microsecond). A folder that is there already keeps its own mode and time. Bytes are for names that are no
   * UTF-8; in the sandbox only the last part may be one. Holes of files stay holes, and are not sent
   * (of one that is named itself, where nothing is in its place). A fifo, and what a descriptor leads to (/dev/stdin), is read to
   * its end, into a file; a fifo's writer is waited for. Throws FileError that names the file where one of this machine's
   * cannot be read, went away or became shorter meanwhile. */
  upload(local: string | Uint8Array, remote: string | Uint8Array, options: CopyOptions = {}): Promise<void> {
    return upload(this, local, remote, options);
  }

  /** A file or folder of the sandbox to `local` (the new name), as `upload`. Nothing is written outside of it. What
   * is new appears whole, or not at all; into a folder that was there files come one by one. */
  download(remote: string, local: string | Uint8Array, options: CopyOptions = {}): Promise<void> {
    return download(this, remote, local, options);
  }
}

function sourceOf(content: Content): Exclude<Content, string | Uint8Array> {
  if (typeof content === "string" || content instanceof Uint8Array) return [bytesOf(content, "content")];
  if (isIterable(content)) return content;
  throw invalid("content", "must be text, bytes or an iterable of them");
}
