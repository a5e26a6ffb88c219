// Files (`sbx.v1.<tenant>.<sandbox>.<verb>`): read, write, stat, list, remove, mkdir, rename, pack, unpack.
import * as v from "valibot";
import { CommandId } from "../ids.ts";
import { Bytes, Fence, LookTransfer, Path, RootPath, Transfer, Version, whole } from "./common.ts";
import { DEFAULT_CREDIT_BYTES } from "./exec.ts";

const Mode = whole("Permission bits", 0o7777);

/** `read`: a file, or a range of it, as chunk frames of stream `data` and a FileEndFrame. A file of at most
 * MAX_INLINE_BYTES comes in the end frame; a larger one without `credit_bytes` is `too_large`.
 * One that becomes shorter while it is read is a `file_error` with reason `ESTALE`: what was read never stood in it. */
export const ReadRequest = v.object({
  version: Version,
  ...Fence,
  path: Path,
  root: RootPath,
  offset: v.optional(whole("First byte"), 0),
  length: v.optional(whole("At most this many")),
  credit_bytes: v.optional(whole("Ahead of the reader", 16 * 1024 * 1024)),
  transfer: Transfer,
});
export const FileEndFrame = v.object({
  type: v.literal("file_end"),
  data: v.optional(Bytes),
  total_bytes: whole("Sent, with those in chunks"),
  size: v.optional(whole("Of the file, when it was opened")),
  sha256: v.optional(v.pipe(v.string(), v.description("Of what was sent, hex"))),
  skipped: v.optional(
    v.pipe(
      v.array(v.string()),
      v.description("Of a pack: fifos, sockets and devices, left out; the first of them"),
    ),
  ),
  skipped_count: v.optional(whole("How many those are")),
});
export type FileEndFrame = v.InferOutput<typeof FileEndFrame>;

/** `write`: a file in one or more parts. The file appears (or is replaced) whole with the last part, by rename;
 * until then it is a hidden file beside it. Parts carry the same `transfer` and their `offset`; a repeated one is
 * skipped, so that a lost answer may be asked for again. `append` adds to what is there instead, and takes one part. */
export const WriteRequest = v.object({
  version: Version,
  ...Fence,
  path: Path,
  root: RootPath,
  transfer: v.optional(CommandId),
  offset: v.optional(whole("Of data's first byte"), 0),
  data: Bytes,
  last: v.optional(v.boolean(), true),
  append: v.optional(v.boolean(), false),
  mode: v.optional(Mode),
  uid: v.optional(whole("uid", 0xffff_fffe)),
  gid: v.optional(whole("gid", 0xffff_fffe)),
  mtime_ms: v.optional(v.number()),
  parents: v.optional(v.pipe(v.boolean(), v.description("Make missing folders")), true),
  fsync: v.optional(v.boolean(), false),
});
/** The answer to each part is the credit for the next: keep a few in flight. */
export const WriteAnswer = v.object({ received: whole("Bytes accepted so far"), done: v.boolean() });

const FileType = v.picklist(["file", "dir", "symlink", "fifo", "socket", "char", "block"]);
export const FileStat = v.object({
  path: v.string(),
  type: FileType,
  size: whole("Bytes"),
  allocated_bytes: v.optional(whole("Of a file, on its disk; less than its size where it has holes")),
  mode: Mode,
  uid: whole(""),
  gid: whole(""),
  mtime_ms: v.number(),
  target: v.optional(v.pipe(v.string(), v.description("Of a symlink"))),
});
export type FileStat = v.InferOutput<typeof FileStat>;

/** `stat`: of the path itself, or with `follow` of what it leads to. */
export const StatRequest = v.object({
  version: Version,
  ...Fence,
  path: Path,
  root: RootPath,
  follow: v.optional(v.boolean(), true),
});
/** `list`: a folder's entries by name, in pages. */
export const ListDirRequest = v.object({
  version: Version,
  ...Fence,
  path: Path,
  root: RootPath,
  after: v.optional(v.pipe(v.string(), v.description("Name; entries behind it"))),
  limit: v.optional(whole("At most", 1000, 1), 1000),
  transfer: LookTransfer,
});
export const ListDirAnswer = v.object({ entries: v.array(FileStat), more: v.boolean() });
/** `remove`: a file, or with `recursive` a folder. Never follows a symlink. */
export const RemoveRequest = v.object({
  version: Version,
  ...Fence,
  path: Path,
  root: RootPath,
  recursive: v.optional(v.boolean(), false),
  missing_ok: v.optional(v.boolean(), false),
  transfer: LookTransfer,
});
export const MkdirRequest = v.object({
  version: Version,
  ...Fence,
  path: Path,
  root: RootPath,
  mode: v.optional(Mode),
  parents: v.optional(v.boolean(), true),
});
/** `rename`: both paths are below `root`, where that is given. */
export const RenameRequest = v.object({
  version: Version,
  ...Fence,
  from: Path,
  to: Path,
  root: RootPath,
});
export const DoneAnswer = v.object({ done: v.literal(true) });

/** `pack`: a folder or file as a tar stream (pax, with holes as GNU tar's sparse format 1.0), in chunk frames of stream `data` and a FileEndFrame.
 * A file that becomes shorter while it is read is a `file_error` with reason `ESTALE`, which names it. */
export const PackRequest = v.object({
  version: Version,
  ...Fence,
  path: Path,
  root: RootPath,
  credit_bytes: v.optional(whole("", 16 * 1024 * 1024), DEFAULT_CREDIT_BYTES),
  transfer: Transfer,
});
/** `unpack`: a tar stream into a folder, in parts like `write`. No entry leaves the folder, by name or by link. Holes
 * (GNU tar's old form, and pax 0.0, 0.1 and 1.0) become holes; a map of them that is none is a `file_error` with reason
 * `EINVAL`. */
export const UnpackRequest = v.object({
  version: Version,
  ...Fence,
  path: Path,
  root: RootPath,
  transfer: CommandId,
  offset: whole("Of data's first byte"),
  data: Bytes,
  last: v.boolean(),
  owner: v.optional(v.pipe(v.boolean(), v.description("Keep uid and gid of the archive")), false),
});
/** `abort_transfer`: throws away a write or unpack that will not be finished. Untouched ones go after 60 s. */
export const AbortTransferRequest = v.object({ version: Version, ...Fence, transfer: CommandId });
export type ListDirAnswer = v.InferOutput<typeof ListDirAnswer>;
