// Examples of the messages about hash, attributes, glob, search and watch.
import { badFence, type Examples, FENCE } from "./example.ts";

const path = "/tmp/a";
const transfer = "0192f0c1-2b3c-7def-8123-456789abcdef";
const sha256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

export const TREE_EXAMPLES: Record<string, Examples> = {
  "sandbox.hash.request": {
    good: { one: { ...FENCE, path }, named: { path: "a", root: "/work", transfer } },
    bad: { ...badFence({ path }), "no id": [{ path, transfer: "x" }, "transfer"] },
  },
  "sandbox.hash.answer": {
    good: { empty: { sha256, size: 0 } },
    bad: { "another digest": [{ sha256: "00ff", size: 0 }, "sha256"] },
  },
  "sandbox.attributes.request": {
    good: {
      mode: { path, mode: 0o4755 },
      "every field": {
        ...FENCE,
        path,
        root: "/work",
        mode: 0,
        uid: 0,
        gid: 1000,
        mtime_ms: 1.5,
        follow: false,
      },
    },
    bad: { ...badFence({ path }), "uid -1": [{ path, uid: 0xffff_ffff }, "uid"] },
  },
  "sandbox.attributes.answer": { good: { done: { done: true } }, bad: { nothing: [{}, "done"] } },
  "sandbox.glob.request": {
    good: {
      plain: { path, pattern: "**/*.py" },
      "names with dots": { path, pattern: "..a/**/.b/c..", hidden: true },
      "the first page": { path, pattern: "*", cursor: "" },
      "the next one": { path, pattern: "*", cursor: "b/c" },
      "the next page": { path: ".", root: "/work", pattern: "*", hidden: true, after: "b/c", limit: 10 },
    },
    bad: {
      ...badFence({ path, pattern: "*" }),
      "no pattern": [{ path }, "pattern"],
      "an absolute pattern": [{ path, pattern: "/etc/*" }, "pattern"],
      "a pattern of here": [{ path, pattern: "./*" }, "pattern"],
      "a pattern that leads out": [{ path, pattern: "*/.." }, "pattern"],
      "too many": [{ path, pattern: "*", limit: 1001 }, "limit"],
      "a cursor of a number": [{ path, pattern: "*", cursor: 1 }, "cursor"],
    },
  },
  "sandbox.glob.answer": {
    good: {
      none: { paths: [], more: false },
      some: { paths: ["a", "ä/b"], more: true },
      "none yet": { paths: [], more: true, cursor: "a/b" },
    },
    bad: { "a number for a path": [{ paths: [1], more: false }, "paths.0"] },
  },
  "sandbox.search.request": {
    good: {
      plain: { path, text: "TODO" },
      "every field": {
        path: ".",
        root: "/work",
        text: "ä",
        ignore_case: true,
        files: "*.{ts,py}",
        hidden: true,
        limit: 1,
      },
    },
    bad: {
      ...badFence({ path, text: "x" }),
      "an empty text": [{ path, text: "" }, "text"],
      "two lines": [{ path, text: "a\nb" }, "text"],
      "files by an absolute pattern": [{ path, text: "x", files: "/etc/*" }, "files"],
    },
  },
  "sandbox.search.answer": {
    good: { one: { matches: [{ path: "a/b", line: 7, text: "a line" }], more: false } },
    bad: { "line 0": [{ matches: [{ path: "a", line: 0, text: "" }], more: false }, "matches.0.line"] },
  },
  "sandbox.watch.request": {
    good: {
      begin: { path },
      named: { path, transfer },
      next: { path: ".", root: "/work", recursive: false, cursor: "w1.5", wait_ms: 0 },
    },
    bad: {
      ...badFence({ path }),
      "a long wait": [{ path, wait_ms: 20_001 }, "wait_ms"],
      "no id": [{ path, transfer: "x" }, "transfer"],
    },
  },
  "sandbox.watch.answer": {
    good: {
      some: { cursor: "w1.7", changes: [{ path: "a/b", kind: "removed" }], overflow: false },
    },
    bad: {
      "another kind": [{ cursor: "", changes: [{ path: "", kind: "?" }], overflow: false }, "changes.0.kind"],
    },
  },
};
