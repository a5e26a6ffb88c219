// What the tests of this folder share: a folder of their own, and whole contents from sources and into sinks.
import { mkdtempSync, readdirSync, readlinkSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ByteSink, ByteSource, Files } from "../../broker/endpoint/executor.ts";
import { DRAFT_PREFIX } from "./draft.ts";
import { createFiles } from "./files.ts";

const made: string[] = [];
/** For `afterEach` of each test file (a hook set here would be the first file's only). */
export function cleanUp(): void {
  for (const path of made.splice(0)) rmSync(path, { recursive: true, force: true });
}

/** A fresh folder, gone with `cleanUp`, and the files as seen from it. */
export function scene(): { root: string; files: Files } {
  const root = mkdtempSync(join(tmpdir(), "files-test-"));
  made.push(root);
  return { root, files: createFiles({ cwd: root }) };
}

export async function drain(source: ByteSource, max = 64 * 1024): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  try {
    for (let part = await source.read(max); part !== undefined; part = await source.read(max))
      parts.push(part);
  } finally {
    await source.close();
  }
  return Buffer.concat(parts);
}

/** Writes in parts of `size` bytes, then finishes. */
export async function fill(sink: ByteSink, data: Uint8Array, size = 64 * 1024): Promise<void> {
  for (let at = 0; at < data.length; at += size) await sink.write(data.subarray(at, at + size));
  await sink.finish();
}

/** Hidden files that a write or unpack has left anywhere below. */
export function drafts(root: string): string[] {
  return readdirSync(root, { recursive: true, encoding: "utf8" }).filter((name) =>
    name.includes(DRAFT_PREFIX),
  );
}

/** Open descriptors of this process, by what they lead to below `root`. */
export function openBelow(root: string): string[] {
  return readdirSync("/proc/self/fd").flatMap((fd) => {
    try {
      const target = readlinkSync(`/proc/self/fd/${fd}`);
      return target.startsWith(root) ? [target] : [];
    } catch {
      return [];
    }
  });
}

/** Of who does not take it back. */
export const kept = new AbortController().signal;

export const written = { append: false, parents: true, fsync: false } as const;

/** The reason of the FileError that `act` rejects with; fails the test where it does not. */
export async function reasonOf(act: Promise<unknown>): Promise<string | undefined> {
  try {
    await act;
  } catch (thrown) {
    if (thrown instanceof Error && thrown.name === "FileError" && "reason" in thrown)
      return typeof thrown.reason === "string" ? thrown.reason : undefined;
    throw thrown;
  }
  throw new Error("it did not fail");
}
