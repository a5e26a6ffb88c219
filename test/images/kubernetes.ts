// The images of the cluster's tests, put into its node without a registry: the daemon's own, and tasks' of each kind.
//
//   bun test/images/kubernetes.ts [--debian]                 imports them into the cluster of test/cluster/up
//   bun test/images/kubernetes.ts [--debian] --to FOLDER     puts docker archives there, for another cluster's nodes
import { lstat, mkdir, mkdtemp, readdir, readFile, readlink, rename, rm } from "node:fs/promises";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { buildDaemon } from "../../agent/build.ts";
import { findServerBinary } from "../../broker/server/index.ts";
import type { ImageParts } from "../../deploy/kubernetes/archive.ts";
import { buildImages } from "../../deploy/kubernetes/images.ts";
import { CLUSTER_DIR } from "../cluster/programs.ts";
import { BUSYBOX, busyboxEntries, type Entry, makeDockerArchive } from "./images.ts";
import { lackOfMusl, makeMuslProgramRoot, makeMuslRoot } from "./musl.ts";

/** Another one where they are pushed to a registry, for a cluster whose nodes cannot be reached. */
const REGISTRY = process.env.SANDMESH_TEST_REGISTRY ?? "sandmesh.test";

export const IMAGES = {
  daemon: `${REGISTRY}/daemon:1`,
  busybox: `${REGISTRY}/busybox:1`,
  /** The same, to run as uid 1000 by its own configuration. */
  user: `${REGISTRY}/user:1`,
  /** One static program, /echo: no shell, no folders. */
  scratch: `${REGISTRY}/scratch:1`,
  /** Shell and programs linked to musl, as Alpine's are; not where these could not be built. */
  musl: `${REGISTRY}/musl:1`,
  /** One program linked to musl, and its loader: no shell. */
  muslProgram: `${REGISTRY}/musl-program:1`,
  debian: `${REGISTRY}/debian:1`,
  nats: `${REGISTRY}/nats:1`,
} as const;

const CACHE = join(process.env.XDG_CACHE_HOME ?? join(homedir(), ".cache"), "sandmesh/images");
const here = import.meta.dir;

/** What a task of software engineering needs; a key of the cache with the release. */
const DEBIAN = { release: "bookworm", packages: "git,python3,make,procps" };

async function run(argv: string[]): Promise<void> {
  const child = Bun.spawn(argv, { stdout: "ignore", stderr: "pipe" });
  const said = await new Response(child.stderr).text();
  if ((await child.exited) !== 0) throw new Error(`${argv.join(" ")}: ${said.slice(-2000)}`);
}

/** A folder's files as an image's root. */
async function entriesOf(folder: string): Promise<Entry[]> {
  const entries: Entry[] = [];
  for (const name of await readdir(folder, { recursive: true })) {
    const path = join(folder, name);
    const found = await lstat(path);
    const mode = found.mode & 0o7777;
    if (found.isDirectory()) entries.push({ name, type: "directory", mode });
    else if (found.isSymbolicLink()) entries.push({ name, type: "symlink", linkname: await readlink(path) });
    else entries.push({ name, content: await readFile(path), mode });
  }
  return entries;
}

/** The daemon's folder, for image volumes; and a `cp`, for the pods that must copy it. */
async function daemonEntries(): Promise<Entry[]> {
  return [
    { name: "bin", type: "directory" },
    { name: "bin/busybox", content: await readFile(BUSYBOX), mode: 0o755 },
    { name: "bin/cp", type: "symlink", linkname: "busybox" },
    ...(await entriesOf(buildDaemon())),
  ];
}

/** Nothing where it cannot be had on a user's machine: its tests are skipped there. */
async function muslParts(folder: string): Promise<{ musl?: ImageParts }> {
  const lack = lackOfMusl({ build: true });
  if (lack !== undefined) {
    process.stderr.write(`no image ${IMAGES.musl}: ${lack}\n`);
    return {};
  }
  return { musl: { layers: [await entriesOf(await makeMuslRoot(join(folder, "musl")))] } };
}

async function archives(folder: string): Promise<string[]> {
  const busybox = await busyboxEntries();
  const echo: Entry = { name: "echo", content: await readFile(BUSYBOX), mode: 0o755 };
  const config = { Env: ["PATH=/bin", "FROM_IMAGE=kept"], WorkingDir: "/home/agent" };
  const parts: Partial<Record<keyof typeof IMAGES, ImageParts>> = {
    daemon: { layers: [await daemonEntries()] },
    busybox: { layers: [busybox], config },
    user: { layers: [busybox], config: { ...config, User: "1000" } },
    scratch: { layers: [[echo]] },
    ...(await muslParts(folder)),
    muslProgram: { layers: [await entriesOf(await makeMuslProgramRoot(join(folder, "musl-program")))] },
    nats: {
      layers: [[{ name: "nats-server", content: await readFile(await findServerBinary()), mode: 0o755 }]],
      config: { Entrypoint: ["/nats-server"] },
    },
  };
  const made: string[] = [];
  for (const name of Object.keys(IMAGES) as (keyof typeof IMAGES)[]) {
    const of = parts[name];
    if (of !== undefined) made.push(await makeDockerArchive(join(folder, `${name}.tar`), of, IMAGES[name]));
  }
  return made;
}

/** By debootstrap, two minutes the first time; cached. Answers the docker archive's path. */
async function debianArchive(): Promise<string> {
  const key = Bun.hash(JSON.stringify(DEBIAN)).toString(36);
  const path = join(CACHE, `debian-${key}.tar`);
  if (await Bun.file(path).exists()) return path;
  await mkdir(CACHE, { recursive: true });
  const work = await mkdtemp(join(CACHE, "work-"));
  try {
    await run([
      "bash",
      join(here, "kubernetes-debian"),
      work,
      DEBIAN.release,
      DEBIAN.packages,
      IMAGES.debian,
    ]);
    await rename(join(work, "image.tar"), path);
  } finally {
    await rm(work, { recursive: true, force: true });
  }
  return path;
}

interface Which {
  debian: boolean;
}

async function allArchives(folder: string, { debian }: Which): Promise<string[]> {
  const { pool, daemon } = await buildImages(join(folder, "mesh"));
  return [...(await archives(folder)), pool, daemon, ...(debian ? [await debianArchive()] : [])];
}

/** Puts them into the node of the cluster that is up; those that are there already are replaced. */
async function importImages(which: Which): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "sandmesh-images-"));
  const bin = (await Bun.$`bash ${join(here, "..", "cluster", "build")}`.quiet().text()).trim();
  try {
    const all = await allArchives(folder, which);
    const ctr = [join(bin, "ctr"), "--address", join(CLUSTER_DIR, "containerd.sock"), "-n", "k8s.io"];
    for (const path of all) await run([...ctr, "images", "import", path]);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

if (import.meta.main) {
  const options = { debian: { type: "boolean", default: false }, to: { type: "string" } } as const;
  const { to, debian } = parseArgs({ options }).values;
  if (to === undefined) await importImages({ debian });
  else {
    await mkdir(to, { recursive: true });
    process.stdout.write(`${(await allArchives(to, { debian })).join("\n")}\n`);
  }
}
