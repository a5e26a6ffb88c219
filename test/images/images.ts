// Makers of small images, without any registry: root file systems, OCI layouts and docker-archive tars.
import { chmod, copyFile, mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { gzipSync } from "node:zlib";
import {
  type Entry,
  type ImageParts,
  imageConfig,
  makeTar,
  sha256,
} from "../../deploy/kubernetes/archive.ts";

export { type Entry, makeDockerArchive, makeTar } from "../../deploy/kubernetes/archive.ts";

/** Where Debian's package busybox-static puts it. */
export const BUSYBOX = "/bin/busybox";
const APPLETS =
  "sh ls cat id echo sleep mkdir rm touch ps stat hostname kill grep wc dd mount umount chroot nc env head find";
const PASSWD = "root:x:0:0:root:/root:/bin/sh\nagent:x:1000:1000:agent:/home/agent:/bin/sh\n";
const GROUP = "root:x:0:\nagent:x:1000:\nextra:x:1001:agent\n";

/** An environment against the programs that read it: the loader, the daemon's runtime, and Node. */
export const HOSTILE_ENV = {
  LD_PRELOAD: "/no/such.so",
  LD_LIBRARY_PATH: "/no/such",
  BUN_OPTIONS: "--no-such-option",
  BUN_BE_BUN: "1",
  NODE_OPTIONS: "--no-such-option",
  LANG: "xx_XX.NONE",
  LC_ALL: "xx_XX.NONE",
};

/** What programs want beside them: homes, /tmp, and two users. */
export function baseEntries(): Entry[] {
  const folders = ["bin", "etc", "root", "home", "home/agent", "tmp"];
  return [
    ...folders.map((name): Entry => ({ name, type: "directory", mode: name === "tmp" ? 0o1777 : 0o755 })),
    { name: "etc/passwd", content: PASSWD },
    { name: "etc/group", content: GROUP },
  ];
}

/** The smallest useful root file system: busybox and two users. */
export async function busyboxEntries(): Promise<Entry[]> {
  return [
    ...baseEntries(),
    { name: "bin/busybox", content: await readFile(BUSYBOX), mode: 0o755 },
    ...APPLETS.split(" ").map(
      (name): Entry => ({ name: `bin/${name}`, type: "symlink", linkname: "busybox" }),
    ),
  ];
}

/** Those as files in that folder. */
export async function makeRoot(folder: string, entries: Entry[]): Promise<void> {
  for (const entry of entries) {
    const path = join(folder, entry.name);
    await mkdir(dirname(path), { recursive: true });
    if (entry.type === "directory") await mkdir(path, { recursive: true });
    else if (entry.type === "symlink") await symlink(entry.linkname ?? "", path);
    else if (entry.name === "bin/busybox") await copyFile(BUSYBOX, path);
    else await writeFile(path, entry.content ?? "");
    if (entry.mode !== undefined && entry.type !== "symlink") await chmod(path, entry.mode);
  }
}

/** A root file system folder of nothing but busybox. */
export async function makeBusyboxRoot(folder: string): Promise<string> {
  await makeRoot(folder, await busyboxEntries());
  return folder;
}

/** The program of init.c by both its names, in that folder. */
export async function addInit(folder: string): Promise<void> {
  const program = join(folder, "init");
  const built = Bun.spawnSync(["cc", "-Os", "-s", "-static", "-o", program, join(import.meta.dir, "init.c")]);
  if (built.exitCode !== 0) throw new Error(`cc: ${built.stderr.toString()}`);
  await copyFile(program, join(folder, "entrypoint"));
}

/** A root file system of one static program, /echo (busybox by that name). */
export async function makeStaticRoot(folder: string): Promise<string> {
  await mkdir(folder, { recursive: true });
  await copyFile(BUSYBOX, join(folder, "echo"));
  await chmod(join(folder, "echo"), 0o755);
  return folder;
}

interface LayoutParts extends Omit<ImageParts, "layers"> {
  /** Lowest first; a tar as it is. */
  layers: (Entry[] | Buffer)[];
  /** Compress the layers, as registries do; default true. */
  gzip?: boolean;
  /** In place of that: what becomes of a layer's tar. */
  pack?: (tar: Buffer) => Uint8Array;
}

async function build({ layers, config = {}, gzip = true, pack }: LayoutParts) {
  const tars = await Promise.all(layers.map((layer) => (Buffer.isBuffer(layer) ? layer : makeTar(layer))));
  const packed = pack ?? ((tar: Buffer) => (gzip ? gzipSync(tar) : tar));
  return { blobs: tars.map(packed), configJson: imageConfig(tars, config) };
}

/** An OCI layout folder (image-spec, image-layout.md). Answers the blobs' paths, layers first, for tests that damage one. */
export async function makeOciLayout(folder: string, parts: LayoutParts): Promise<string[]> {
  const { blobs, configJson } = await build(parts);
  const paths: string[] = [];
  await mkdir(join(folder, "blobs/sha256"), { recursive: true });
  const put = async (data: Uint8Array, mediaType: string) => {
    const path = join(folder, "blobs/sha256", sha256(data));
    await writeFile(path, data);
    paths.push(path);
    return { mediaType, digest: `sha256:${sha256(data)}`, size: data.length };
  };
  const kind = "application/vnd.oci.image";
  const suffix = parts.gzip === false ? "" : "+gzip";
  const layers = [];
  for (const blob of blobs) layers.push(await put(blob, `${kind}.layer.v1.tar${suffix}`));
  const config = await put(configJson, `${kind}.config.v1+json`);
  const manifest = { schemaVersion: 2, mediaType: `${kind}.manifest.v1+json`, config, layers };
  const entry = await put(Buffer.from(JSON.stringify(manifest)), `${kind}.manifest.v1+json`);
  await writeFile(join(folder, "index.json"), JSON.stringify({ schemaVersion: 2, manifests: [entry] }));
  await writeFile(join(folder, "oci-layout"), JSON.stringify({ imageLayoutVersion: "1.0.0" }));
  return paths;
}
