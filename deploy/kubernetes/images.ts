// The mesh's own two images, without a container engine: the pool (one compiled file, its loader and libc) and the daemon
// (the folder that is mounted into sandboxes, and the program that installs it on a node). Neither has a shell.
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { version } from "../../package.json" with { type: "json" };
import { type Entry, type ImageParts, makeDockerArchive, sha256 } from "./archive.ts";

const ROOT = join(import.meta.dir, "..", "..");

/** As the chart names them. */
export const IMAGE_NAMES = {
  pool: `sandmesh-pool:${version}`,
  daemon: `sandmesh-daemon:${version}`,
} as const;

/** Nobody's number on any node. */
const USER = "65532:65532";

function run(argv: [string, ...string[]]): void {
  const [program, ...args] = argv;
  const made = spawnSync(program, args, { cwd: ROOT, encoding: "utf8" });
  if (made.status !== 0) throw new Error(`${argv.join(" ")}: ${made.error ?? made.stderr}`);
}

/** The daemon's folder, built where it is not up to date. */
function daemonFolder(): string {
  run([process.execPath, "agent/build.ts"]);
  return join(ROOT, "dist/daemon");
}

const file = (path: string, name: string): Entry => ({
  name,
  content: readFileSync(path),
  mode: statSync(path).mode & 0o111 ? 0o755 : 0o644,
});

function withWork<T>(work: (folder: string) => T): T {
  const folder = mkdtempSync(join(tmpdir(), "sandmesh-image-"));
  try {
    return work(folder);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The installer, a static program. `flags`: for tests. Throws without a C compiler. */
export function compileInstaller(to: string, flags: string[] = []): string {
  const source = join(import.meta.dir, "installer/installer.c");
  run([
    process.env.CC ?? "cc",
    "-Os",
    "-s",
    "-static",
    "-Wall",
    "-Wextra",
    "-Werror",
    ...flags,
    "-o",
    to,
    source,
  ]);
  return to;
}

/** As sha256sum writes it. */
export const sumsOf = (entries: readonly Entry[]): string =>
  entries.map(({ name, content = "" }) => `${sha256(Buffer.from(content))}  ${name}\n`).join("");

function daemonImage(): ImageParts {
  const folder = daemonFolder();
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => statSync(join(folder, name)).isFile())
    .sort()
    .map((name) => file(join(folder, name), name));
  const installer = withWork((work) => file(compileInstaller(join(work, "i")), "sandmesh-installer"));
  const root: Entry[] = [
    { name: "lib", type: "directory" },
    ...files,
    { name: "SHA256SUMS", content: sumsOf(files) },
    // Where the node's folder is mounted: a root that cannot be written needs it there.
    { name: "host", type: "directory" },
    { name: "target", type: "directory" },
    installer,
  ];
  return { layers: [root], config: { Entrypoint: ["/sandmesh-installer"] } };
}

/** Where programs of this machine's kind look for their loader and libraries. */
const PLACES = {
  x64: { loader: "lib64/ld-linux-x86-64.so.2", libraries: "lib/x86_64-linux-gnu" },
  arm64: { loader: "lib/ld-linux-aarch64.so.1", libraries: "lib/aarch64-linux-gnu" },
} as const;

function poolImage(): ImageParts {
  const { loader, libraries } = process.arch === "arm64" ? PLACES.arm64 : PLACES.x64;
  const own = join(daemonFolder(), "lib");
  const program = withWork((work) => {
    const out = join(work, "sandmesh-pool");
    const how = ["--compile", "--minify", "--bytecode", "--format=esm", "--no-compile-autoload-dotenv"];
    run([
      process.execPath,
      "build",
      ...how,
      "--no-compile-autoload-bunfig",
      "--outfile",
      out,
      "pool/main.ts",
    ]);
    return file(out, "sandmesh-pool");
  });
  const libc: Entry[] = readdirSync(own).map((name) =>
    file(join(own, name), loader.endsWith(name) ? loader : `${libraries}/${name}`),
  );
  const folders = ["etc", "tmp", "lib", "lib64", libraries].map(
    (name): Entry => ({ name, type: "directory", mode: name === "tmp" ? 0o1777 : 0o755 }),
  );
  const passwd = "root:x:0:0:root:/:/none\nsandmesh:x:65532:65532:sandmesh:/tmp:/none\n";
  const layers = [[...folders, { name: "etc/passwd", content: passwd }, ...libc], [program]];
  return { layers, config: { Entrypoint: ["/sandmesh-pool"], User: USER, WorkingDir: "/tmp" } };
}

/** Writes both as docker archives into `folder`, and answers their paths. Throws where compilers are missing. */
export async function buildImages(folder: string): Promise<Record<keyof typeof IMAGE_NAMES, string>> {
  mkdirSync(folder, { recursive: true });
  const made = (name: keyof typeof IMAGE_NAMES, parts: ImageParts) =>
    makeDockerArchive(join(folder, `sandmesh-${name}-${version}.tar`), parts, IMAGE_NAMES[name]);
  return { pool: await made("pool", poolImage()), daemon: await made("daemon", daemonImage()) };
}
