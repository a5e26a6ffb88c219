// What people look for in files, without downloading them (`sbx.v1.<tenant>.<sandbox>.<verb>`): hash, attributes, glob,
// search, watch.
import * as v from "valibot";
import { Fence, LookTransfer, milliseconds, Path, RootPath, text, Version, whole } from "./common.ts";

/** `hash`: a file's sha256, read where it lies. One that becomes shorter meanwhile is a `file_error` with reason `ESTALE`. */
export const HashRequest = v.object({
  version: Version,
  ...Fence,
  path: Path,
  root: RootPath,
  transfer: LookTransfer,
});
export const HashAnswer = v.object({
  sha256: v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/, "must be 64 hexadecimal digits")),
  size: whole("Bytes that it is of"),
});
export type HashAnswer = v.InferOutput<typeof HashAnswer>;

/** `attributes`: sets those that are given, as chmod, chown and touch. Of what a symlink leads to, or with
 * `follow: false` of the link itself (which has no mode). */
export const AttributesRequest = v.object({
  version: Version,
  ...Fence,
  path: Path,
  root: RootPath,
  mode: v.optional(whole("Permission bits", 0o7777)),
  uid: v.optional(whole("uid", 0xffff_fffe)),
  gid: v.optional(whole("gid", 0xffff_fffe)),
  mtime_ms: v.optional(v.number()),
  follow: v.optional(v.boolean(), true),
});

/** A path below the folder has neither a slash in front nor `.` and `..`: what asks for them would walk it all for nothing. */
const Pattern = v.pipe(
  text(
    "`*` and `?` within a name, `**` for folders of any depth, `[abc]`, `{a,b}`; of the path below the folder: not absolute, and without `.` and `..`",
    4096,
    1,
  ),
  v.check(
    (pattern) => !/^!*\/|(^!*|\/)\.{1,2}(\/|$)/.test(pattern),
    "must be of the path below the folder: not absolute, and without the names `.` and `..`",
  ),
);
/** Of one answer; what has more is asked for in pages. */
const Limit = v.optional(whole("At most", 1000, 1), 1000);

/** `glob`: paths below a folder, in order, in pages. One ends after 20 s, too: by `cursor`, which none but an empty one
 * begins, it may have no path then; by `after` alone it has one, however long that takes. Symlinks are told and not followed; other file systems that are
 * mounted below are left out. */
export const GlobRequest = v.object({
  version: Version,
  ...Fence,
  path: Path,
  root: RootPath,
  pattern: Pattern,
  hidden: v.optional(v.pipe(v.boolean(), v.description("Also names that begin with a dot")), false),
  after: v.optional(v.pipe(v.string(), v.description("A path of the last page; those behind it"))),
  cursor: v.optional(
    v.pipe(v.string(), v.description("Of the answer before, or empty: pages may be without a path")),
  ),
  limit: Limit,
  transfer: LookTransfer,
});
export const GlobAnswer = v.object({
  paths: v.pipe(v.array(v.string()), v.description("Below the folder")),
  more: v.boolean(),
  cursor: v.optional(v.pipe(v.string(), v.description("Where there is more: from where on"))),
});
export type GlobAnswer = v.InferOutput<typeof GlobAnswer>;

/** `search`: lines that contain a text (no pattern language), in the files of a folder or in one file. Files with NUL
 * in their first 8 KiB are no text, and left out. */
export const SearchRequest = v.object({
  version: Version,
  ...Fence,
  path: Path,
  root: RootPath,
  text: v.pipe(
    text("What a line must contain", 1024, 1),
    v.check((sought) => !sought.includes("\n"), "must not contain a line end"),
  ),
  ignore_case: v.optional(v.boolean(), false),
  files: v.optional(Pattern),
  hidden: v.optional(v.boolean(), false),
  limit: Limit,
  transfer: LookTransfer,
});
const SearchMatch = v.object({
  path: v.pipe(v.string(), v.description("Below the folder; empty for the file itself")),
  line: whole("From 1", undefined, 1),
  text: v.pipe(v.string(), v.description("The line, at most 500 characters around the match")),
});
export const SearchAnswer = v.object({
  matches: v.array(SearchMatch),
  more: v.pipe(v.boolean(), v.description("The limit, or the time of 20 s, ended the search")),
});
export type SearchAnswer = v.InferOutput<typeof SearchAnswer>;

/** `watch`: what changes below a folder. The first request, without a cursor, begins one, and answers its cursor when all
 * folders are watched (of `/` that takes seconds); by the same `transfer` it begins once, and `abort_transfer` ends it, also
 * while it begins. Each further one answers what changed since, waiting for it up to `wait_ms`. The same cursor again answers
 * the same changes. A watch that nobody asks for 60 s ends, as one whose folder, or one above, was removed, moved or replaced,
 * and its cursor is `not_found`. At most 131,072 folders are watched at once, and as many as the machine allows (`file_error`
 * with reason `ENOSPC`); proc, sysfs and the like are left out. */
export const WatchRequest = v.object({
  version: Version,
  ...Fence,
  path: Path,
  root: RootPath,
  recursive: v.optional(v.boolean(), true),
  cursor: v.optional(v.pipe(v.string(), v.maxLength(64))),
  wait_ms: v.optional(v.pipe(milliseconds("For a change"), v.maxValue(20_000)), 20_000),
  transfer: LookTransfer,
});
export const WatchAnswer = v.object({
  cursor: v.string(),
  changes: v.array(
    v.object({
      path: v.pipe(v.string(), v.description("Below the folder")),
      kind: v.pipe(
        v.picklist(["changed", "removed"]),
        v.description(
          "removed: with all that was below it; told also of a folder that was replaced, ahead of what is there now",
        ),
      ),
    }),
  ),
  overflow: v.pipe(v.boolean(), v.description("More changed than is remembered: look for yourself")),
});
export type WatchAnswer = v.InferOutput<typeof WatchAnswer>;
