// Docker archives (as `docker save` writes them) without Docker: what `docker load`, skopeo and `ctr images import` read.
import { createHash } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { pack } from "tar-stream";

/** One entry of a layer. A whiteout is a file whose name starts with `.wh.` (OCI image-spec, layer.md). */
export interface Entry {
  name: string;
  type?: "file" | "directory" | "symlink" | "link";
  content?: string | Buffer;
  linkname?: string;
  mode?: number;
  uid?: number;
  gid?: number;
}

export interface ImageParts {
  /** Lowest first. */
  layers: Entry[][];
  /** Docker's `config` of the image: Env, User, WorkingDir, Entrypoint, Cmd. */
  config?: Record<string, unknown>;
}

export const sha256 = (data: Uint8Array): string => createHash("sha256").update(data).digest("hex");

/** A tar of `entries`, in their order; the same for the same entries. */
export async function makeTar(entries: Entry[]): Promise<Buffer> {
  const tar = pack();
  for (const { name, type = "file", content = "", linkname, mode, uid = 0, gid = 0 } of entries) {
    const data = type === "file" ? Buffer.from(content) : Buffer.alloc(0);
    const known = { name, size: data.length, mtime: new Date(0), uid, gid };
    const header = { ...known, mode: mode ?? (type === "directory" ? 0o755 : 0o644) };
    if (linkname === undefined) tar.entry({ ...header, type }, data);
    else tar.entry({ ...header, type, linkname }, data);
  }
  tar.finalize();
  const parts: Buffer[] = [];
  for await (const part of tar) if (part instanceof Uint8Array) parts.push(Buffer.from(part));
  return Buffer.concat(parts);
}

/** The image's configuration (image-spec, config.md) over these uncompressed layers. */
export function imageConfig(layers: readonly Uint8Array[], config: Record<string, unknown> = {}): Buffer {
  const architecture = process.arch === "arm64" ? "arm64" : "amd64";
  const rootfs = { type: "layers", diff_ids: layers.map((layer) => `sha256:${sha256(layer)}`) };
  return Buffer.from(JSON.stringify({ architecture, os: "linux", config, rootfs }));
}

/** Writes one at `path`, and answers that. */
export async function makeDockerArchive(
  path: string,
  parts: ImageParts,
  tag = "small:latest",
): Promise<string> {
  const layers = await Promise.all(parts.layers.map(makeTar));
  const names = layers.map((layer) => `${sha256(layer)}/layer.tar`);
  const configJson = imageConfig(layers, parts.config);
  const config = `${sha256(configJson)}.json`;
  const manifest = JSON.stringify([{ Config: config, RepoTags: [tag], Layers: names }]);
  const files = new Map(names.map((name, i) => [name, layers[i] ?? Buffer.alloc(0)]));
  await writeFile(
    path,
    await makeTar([
      ...[...files].map(([name, content]): Entry => ({ name, content })),
      { name: config, content: configJson },
      { name: "manifest.json", content: manifest },
    ]),
  );
  return path;
}
