// A fixture's files as one tar, to be unpacked at `/` of a sandbox.
import { pack } from "tar-stream";
import type { Fixture } from "./trajectory.ts";

/** The fixture's entries as a tar archive, with modes and times. `now` stands for entries without a time. */
export async function fixtureTar(fixture: Fixture, now: Date = new Date()): Promise<Buffer> {
  const archive = pack();
  for (const entry of fixture.entries) {
    const header = {
      name: entry.path.replace(/^\/+/, ""),
      mode: Number.parseInt(entry.mode ?? (entry.type === "dir" ? "0755" : "0644"), 8),
      mtime: entry.mtime === undefined ? now : timeOf(entry.mtime),
    };
    if (entry.type === "dir") archive.entry({ ...header, type: "directory" });
    else if (entry.type === "symlink")
      archive.entry({ ...header, type: "symlink", linkname: entry.target ?? "" });
    else archive.entry({ ...header, type: "file" }, contentOf(entry));
  }
  archive.finalize();
  const parts: Buffer[] = [];
  for await (const part of archive) parts.push(part as Buffer);
  return Buffer.concat(parts);
}

/** Recorded as seconds since the epoch, or as a date. */
function timeOf(mtime: number | string): Date {
  return new Date(typeof mtime === "number" ? mtime * 1000 : mtime);
}

function contentOf(entry: Fixture["entries"][number]): Buffer {
  return entry.content_b64 === undefined
    ? Buffer.from(entry.content ?? "", "utf8")
    : Buffer.from(entry.content_b64, "base64");
}
