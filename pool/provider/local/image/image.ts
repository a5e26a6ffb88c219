// Images of the local provider: what `spec.image` may be, and the folders that it comes to.
import { createHash } from "node:crypto";
import type { Stats } from "node:fs";
import { mkdir, realpath, rename, stat } from "node:fs/promises";
import { isAbsolute, join } from "node:path";
import * as v from "valibot";
import { ImageError, ProviderError, randomName, wordsOf } from "../../../../broker/contract/index.ts";
import { isData } from "../file-systems.ts";
import { namesIn } from "../layout.ts";
import { findPython } from "../python.ts";
import { removeTree } from "../removal.ts";
import type { Secrets } from "../secrets.ts";

const FORMS =
  "`host` (this machine's root file system), an absolute path to a root file system folder, to an OCI layout (folder or tar) or to a docker-archive tar (`docker save`); PATH#NAME where it holds several";

/** What a program can be given: C strings in UTF-8. */
const Text = v.pipe(
  v.string(),
  v.check((text) => !text.includes("\0") && !/\p{Surrogate}/u.test(text), "it has a NUL or half a character"),
);

/** The part of an image's configuration that is honoured (OCI image-spec, config.md). */
const Config = v.object({
  Env: v.nullish(v.array(Text), []),
  User: v.nullish(Text, ""),
  WorkingDir: v.nullish(Text, ""),
  Entrypoint: v.nullish(v.array(Text), []),
  Cmd: v.nullish(v.array(Text), []),
});
export type ImageConfig = v.InferOutput<typeof Config>;
const Described = v.object({
  config: Config,
  layers: v.array(v.object({ id: v.pipe(v.string(), v.regex(/^sha256:[0-9a-f]{64}$/)), name: v.string() })),
});
type Described = v.InferOutput<typeof Described>;
const Unpacked = v.object({ alone: v.boolean() });
const Fault = v.object({ error: v.string(), errno: v.optional(v.string()) });

interface Layer {
  id: string;
  name: string;
  /** The image-spec's ChainID: of the layer on those below it. */
  chain: string;
}

export interface ResolvedImage {
  kind: "host" | "folder" | "layers";
  /** Topmost first. */
  lowers: string[];
  /** Of a folder: of what was looked at (places.ts). */
  identity: string | null;
  config: ImageConfig;
}

const NO_CONFIG: ImageConfig = { Env: [], User: "", WorkingDir: "", Entrypoint: [], Cmd: [] };

interface Image {
  path: string;
  /** Of several in it, which. */
  ref: string;
  archive: boolean;
  version: string;
  identity: string;
}

const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");
const hexOf = (digest: string): string => digest.slice("sha256:".length);

/** The folder of a layer as it was unpacked before these were named by what they lie on; no image is of such any more. */
const EARLIER = /^[0-9a-f]{64}$/;

/** Finds images and keeps unpacked layers below `layersDir`: each once, `own-…`; one that takes something of the layers
 * below it (attributes of folders that it does not name, a hard link's file), once for each such, `on-…`. */
export class Images {
  readonly #layersDir: string;
  readonly #secrets: Secrets;
  readonly #described = new Map<string, Promise<Described>>();
  readonly #unpacking = new Map<string, Promise<string>>();

  constructor(secrets: Secrets, layersDir: string) {
    this.#secrets = secrets;
    this.#layersDir = layersDir;
  }

  /** Throws ImageError where `image` is none of the forms or cannot be read. Unpacks nothing. */
  async check(image: string): Promise<void> {
    if (image === "host") return;
    const found = await this.#find(image);
    if (found.archive) await this.#describe(found.path, found.ref, found.version);
  }

  /** The image's folders; unpacks layers that were never used before (seconds for a large one). */
  async resolve(image: string): Promise<ResolvedImage> {
    if (image === "host") return { kind: "host", lowers: ["/"], identity: null, config: NO_CONFIG };
    const { path, ref, archive, version, identity } = await this.#find(image);
    if (!archive) return { kind: "folder", lowers: [path], identity, config: NO_CONFIG };
    const { config, layers } = await this.#describe(path, ref, version);
    // Topmost first. An image may name one layer twice (an empty one), overlay may not: the upper one counts.
    let lowers: string[] = [];
    let chain = "";
    for (const layer of layers) {
      chain = chain === "" ? layer.id : `sha256:${sha256(`${chain} ${layer.id}`)}`;
      const folder = await this.#layer(path, { ...layer, chain }, lowers);
      lowers = [folder, ...lowers.filter((lower) => lower !== folder)];
    }
    return { kind: "layers", lowers, identity: null, config };
  }

  /** Removes layers that no image is of any more. Only where there is no sandbox: an older one may be made of them. */
  async removeEarlier(): Promise<void> {
    const names = await namesIn(this.#layersDir);
    for (const name of names.filter((n) => EARLIER.test(n))) await removeTree(join(this.#layersDir, name));
  }

  async #find(image: string): Promise<Image> {
    const fault = (why: string) =>
      new ImageError(`image ${image}: ${why}. Here it may be ${FORMS}.`, { field: "spec.image" });
    if (!isAbsolute(image)) {
      if (image.startsWith(".")) throw fault("not an absolute path");
      if (image.toLowerCase() === "host") throw fault("this machine's own is written host");
      throw fault("names of a registry are for the Kubernetes provider, the local one fetches nothing");
    }
    let [path = "", ref = ""] = [image, ""];
    const hash = image.lastIndexOf("#");
    if (hash > 0 && (await stat(image).catch(() => undefined)) === undefined) {
      path = image.slice(0, hash);
      ref = image.slice(hash + 1);
    }
    const real = await realpath(path).catch(() => undefined);
    const info = real === undefined ? undefined : await stat(real).catch(() => undefined);
    const found = this.#secrets.look(path);
    if (real === undefined || info === undefined || found === undefined)
      throw fault("no such file or folder");
    if (found.isSecret) throw fault("that folder is, holds or lies in the mesh's own state folder");
    const [own] = found.mounts;
    if (own !== undefined && !isData(own.type)) throw fault(`it is on ${own.type}, no file system of data`);
    const { identity } = found;
    // mtime is whoever writes it to set, ctime is the kernel's.
    const versionOf = ({ dev, ino, mtimeMs, ctimeMs, size }: Stats) =>
      `${dev}:${ino}:${mtimeMs}:${ctimeMs}:${size}`;
    if (info.isFile()) return { path: real, ref, archive: true, version: versionOf(info), identity };
    if (!info.isDirectory()) throw fault("neither a file nor a folder");
    const names = await namesIn(real);
    if (names.length === 0) throw fault("an empty folder");
    if (!names.includes("oci-layout")) return { path: real, ref, archive: false, version: "", identity };
    // Tools write a layout's index anew in its place, which its folder does not show.
    const index = await stat(join(real, "index.json")).catch(() => info);
    return { path: real, ref, archive: true, version: versionOf(index), identity };
  }

  #describe(path: string, ref: string, version: string): Promise<Described> {
    const key = `${path}#${ref}@${version}`;
    let described = this.#described.get(key);
    if (described === undefined) {
      if (this.#described.size >= 256) this.#described.clear();
      described = this.#run(path, ["describe", path, ...(ref === "" ? [] : [ref])]).then((text) => {
        const result = v.safeParse(Described, JSON.parse(text));
        if (result.success) return result.output;
        const [issue] = result.issues;
        const where = v.getDotPath(issue)?.replace(/^config\./, "") ?? "";
        throw new ImageError(`image ${path}: its configuration is malformed: ${where}: ${wordsOf(issue)}`);
      });
      this.#described.set(key, described);
      described.catch(() => this.#described.delete(key));
    }
    return described;
  }

  /** The layer's folder. Two that need it at once unpack it once; two processes both unpack, and one wins. */
  #layer(path: string, layer: Layer, below: string[]): Promise<string> {
    let unpacking = this.#unpacking.get(layer.chain);
    if (unpacking === undefined) {
      unpacking = this.#unpack(path, layer, below).finally(() => this.#unpacking.delete(layer.chain));
      this.#unpacking.set(layer.chain, unpacking);
    }
    return unpacking;
  }

  async #unpack(path: string, layer: Layer, below: string[]): Promise<string> {
    const isThere = (folder: string) =>
      stat(folder).then(
        () => true,
        () => false,
      );
    const shared = join(this.#layersDir, `own-${hexOf(layer.id)}`);
    const chained = join(this.#layersDir, `on-${hexOf(layer.chain)}`);
    for (const folder of [shared, chained]) if (await isThere(folder)) return folder;
    await mkdir(this.#layersDir, { recursive: true });
    const fresh = join(this.#layersDir, `.new-${randomName(10)}`);
    try {
      const text = await this.#run(path, ["unpack", path, layer.name, layer.id, fresh, ...below]);
      const folder = v.parse(Unpacked, JSON.parse(text)).alone ? shared : chained;
      await rename(fresh, folder).catch(async (error: unknown) => {
        if (!(await isThere(folder))) throw error;
      });
      return folder;
    } finally {
      await removeTree(fresh);
    }
  }

  /** Runs archive.py; its complaint becomes an ImageError. */
  async #run(path: string, args: string[]): Promise<string> {
    // Isolated but for the modules beside it; names are bytes, whatever the pool's locale.
    const python = [await findPython(), "-s", "-S", "-E", "-B", "-X", "utf8"];
    const child = Bun.spawn([...python, join(import.meta.dir, "archive.py"), ...args], {
      stdin: "ignore",
      stdout: "pipe",
      stderr: "pipe",
    });
    const [out, complaint, code] = await Promise.all([
      new Response(child.stdout).text(),
      new Response(child.stderr).text(),
      child.exited,
    ]);
    if (code === 0) return out;
    if (code === 4) {
      const { error, errno: reason = "EIO" } = v.parse(Fault, JSON.parse(out));
      throw new ProviderError(`image ${path} could not be unpacked: ${error}`, { reason });
    }
    const why =
      code === 3 ? v.parse(Fault, JSON.parse(out)).error : (complaint.trim().split("\n").pop() ?? "");
    throw new ImageError(`image ${path}: ${why}. An image may be ${FORMS}.`, { field: "spec.image" });
  }
}
