// Examples of the messages about files.
import { badFence, type Examples, FENCE, ID, RAW } from "./example.ts";

const path = "/tmp/a";
const stat = { path, type: "file", size: 7, mode: 0o644, uid: 0, gid: 0, mtime_ms: 1_700_000_000_123.5 };
const done = (): Examples => ({
  good: { done: { done: true } },
  bad: { "not done": [{ done: false }, "done"] },
});

export const FILE_EXAMPLES: Record<string, Examples> = {
  "sandbox.read.request": {
    good: {
      whole: { path },
      "a range": { version: 1, ...FENCE, path: "rel/ä", offset: 5, length: 0, credit_bytes: 1 },
      "beneath a root": { path: "a/b", root: "/work" },
    },
    bad: {
      "a root that is no text": [{ path, root: 5 }, "root"],
      "an empty root": [{ path, root: "" }, "root"],
      ...badFence({ path }),
      "no path": [{}, "path"],
      "NUL in the path": [{ path: "/tmp/\0" }, "path"],
      "an offset below 0": [{ path, offset: -1 }, "offset"],
    },
  },
  "frame.file_end": {
    good: {
      inline: { type: "file_end", data: RAW, total_bytes: 7, size: 7, sha256: "00ff" },
      "after chunks": { type: "file_end", total_bytes: 5_000_000_000 },
    },
    bad: { "no total": [{ type: "file_end" }, "total_bytes"] },
  },
  "sandbox.write.request": {
    good: {
      "one part": { path, data: RAW },
      "the first of several": { ...FENCE, path, transfer: ID, offset: 0, data: RAW, last: false },
      "every field": {
        version: 1,
        path,
        root: "work",
        transfer: ID,
        offset: 7,
        data: new Uint8Array(0),
        last: true,
        append: false,
        mode: 0o4755,
        uid: 1000,
        gid: 1000,
        mtime_ms: 0,
        parents: false,
        fsync: true,
      },
    },
    bad: {
      ...badFence({ path, data: RAW }),
      "no data": [{ path }, "data"],
      "a mode of five digits": [{ path, data: RAW, mode: 0o10000 }, "mode"],
      "uid -1": [{ path, data: RAW, uid: 0xffff_ffff }, "uid"],
      "a transfer that is no id": [{ path, data: RAW, transfer: "1" }, "transfer"],
    },
  },
  "sandbox.write.answer": { good: { done: { received: 7, done: true } }, bad: { nothing: [{}, "received"] } },
  "sandbox.stat.request": {
    good: { plain: { path }, link: { path: "l", root: "/work", follow: false } },
    bad: { ...badFence({ path }) },
  },
  "sandbox.stat.answer": {
    good: {
      file: stat,
      "with holes": { ...stat, size: 10_000, allocated_bytes: 4096 },
      link: { ...stat, type: "symlink", target: "../b" },
    },
    bad: {
      "a strange type": [{ ...stat, type: "door" }, "type"],
      "no size": [{ ...stat, size: undefined }, "size"],
    },
  },
  "sandbox.list.request": {
    good: {
      plain: { path },
      "the next page": { path: ".", root: "/work", after: "b", limit: 10, transfer: ID },
    },
    bad: {
      ...badFence({ path }),
      "no id": [{ path, transfer: "x" }, "transfer"],
      "a limit of 0": [{ path, limit: 0 }, "limit"],
      "too many": [{ path, limit: 1001 }, "limit"],
    },
  },
  "sandbox.list.answer": {
    good: { none: { entries: [], more: false }, one: { entries: [stat], more: true } },
    bad: { "a bad entry": [{ entries: [{ ...stat, mode: "rw" }], more: false }, "entries.0.mode"] },
  },
  "sandbox.remove.request": {
    good: {
      file: { path },
      tree: { path: "a", root: "/work", recursive: true, missing_ok: true, transfer: ID },
    },
    bad: {
      ...badFence({ path }),
      "recursive as text": [{ path, recursive: "yes" }, "recursive"],
      "no id": [{ path, transfer: "x" }, "transfer"],
    },
  },
  "sandbox.remove.answer": done(),
  "sandbox.mkdir.request": {
    good: { plain: { path }, private: { path: "a", root: "/work", mode: 0o700, parents: false } },
    bad: badFence({ path }),
  },
  "sandbox.mkdir.answer": done(),
  "sandbox.rename.request": {
    good: { one: { from: path, to: "/tmp/b" }, "beneath a root": { from: "a", to: "b", root: "/work" } },
    bad: { ...badFence({ from: path, to: path }), "to nothing": [{ from: path, to: "" }, "to"] },
  },
  "sandbox.rename.answer": done(),
  "sandbox.pack.request": {
    good: { one: { path }, "beneath a root": { path: ".", root: "/work" } },
    bad: badFence({ path }),
  },
  "sandbox.unpack.request": {
    good: {
      part: { path: "a", root: "/work", transfer: ID, offset: 0, data: RAW, last: false, owner: true },
    },
    bad: {
      ...badFence({ path, transfer: ID, offset: 0, data: RAW, last: true }),
      "no transfer": [{ path, offset: 0, data: RAW, last: true }, "transfer"],
    },
  },
  "sandbox.unpack.answer": {
    good: { some: { received: 512, done: false } },
    bad: { nothing: [{}, "received"] },
  },
  "sandbox.abort_transfer.request": { good: { one: { transfer: ID } }, bad: badFence({ transfer: ID }) },
  "sandbox.abort_transfer.answer": done(),
  "sandbox.ping.request": { good: { plain: {}, fenced: { version: 1, ...FENCE } }, bad: badFence({}) },
  "sandbox.ping.answer": {
    good: { one: { sandbox: "sb-1", incarnation: "x", generation: 1 } },
    bad: { "a sandbox with a dot": [{ sandbox: "a.b", incarnation: "x", generation: 1 }, "sandbox"] },
  },
  "sandbox.info.request": { good: { plain: {} }, bad: badFence({}) },
  "sandbox.info.answer": {
    good: {
      one: {
        sandbox: "sb-1",
        tenant: "default",
        incarnation: "x",
        generation: 1,
        version: "0.1.0",
        image: "host",
        uptime_ms: 5,
        boot_ms: 12.75,
        pid: 1,
        uid: 0,
        hostname: "sb-1",
        cwd: "/",
        shells: ["/bin/bash", "/bin/sh"],
        cpus: 2,
        memory_limit_bytes: 536_870_912,
        commands_running: 0,
        sessions: 0,
        not_isolated: ["the network"],
      },
    },
    bad: { nothing: [{}, "sandbox"] },
  },
};
