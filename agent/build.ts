// `bun agent/build.ts [--arch x64|arm64] [--out FOLDER]`: the daemon's folder, which is mounted into sandboxes as it is:
// the launcher `sandmesh-agent`, the compiled daemon, its engine, and the loader and libc that they run with.
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { Glob } from "bun";
import { compileNative, NATIVE_NAME } from "./native/compile.ts";

const ROOT = join(import.meta.dir, "..");
export const DAEMON_FOLDER = join(ROOT, "dist/daemon");

interface Machine {
  target: "bun-linux-x64" | "bun-linux-arm64";
  loader: string;
  /** Multiarch name, by which Debian's folders and compilers are called. */
  triplet: string;
}
const MACHINES = {
  x64: { target: "bun-linux-x64", loader: "ld-linux-x86-64.so.2", triplet: "x86_64-linux-gnu" },
  arm64: { target: "bun-linux-arm64", loader: "ld-linux-aarch64.so.1", triplet: "aarch64-linux-gnu" },
} as const satisfies Record<string, Machine>;
type Arch = keyof typeof MACHINES;
const isArch = (value: string): value is Arch => value in MACHINES;

/** What Bun needs of libc. */
const LIBRARIES = ["libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0"];
const INPUTS = [
  "agent/**/*.{ts,c,h}",
  "broker/{contract,credentials,link,endpoint}/**/*.ts",
  "package-lock.json",
];

function command(argv: string[]): string {
  const result = Bun.spawnSync(argv, { cwd: ROOT, stdout: "pipe", stderr: "pipe" });
  if (result.exitCode !== 0) throw new Error(`${argv.join(" ")}\n${result.stderr.toString()}`);
  return result.stdout.toString().trim();
}

/** Everything that the folder's content follows from. */
function fingerprint(arch: Arch, cc: string): string {
  const hash = new Bun.CryptoHasher("sha256").update(`${Bun.version} ${arch} ${cc}\0`);
  const files = INPUTS.flatMap((pattern) => [...new Glob(pattern).scanSync({ cwd: ROOT })]);
  for (const file of files.filter((name) => !name.endsWith(".test.ts")).sort())
    hash
      .update(`${file}\0`)
      .update(readFileSync(join(ROOT, file)))
      .update("\0");
  return hash.digest("hex");
}

/** Where the C compiler would link it from: this machine's libc, or the cross compiler's. */
function libraryPath(cc: string, name: string): string {
  const path = command([cc, `-print-file-name=${name}`]);
  if (!path.startsWith("/")) throw new Error(`${cc} knows no ${name}; is its libc installed?`);
  return path;
}

/** The loader would obey the image's /etc/ld.so.preload, whose libraries are for another libc: it gets a path that
 * never exists, of the same length. */
function copyLoader(from: string, to: string): void {
  const bytes = readFileSync(from);
  const at = bytes.indexOf("/etc/ld.so.preload\0");
  if (at < 0) throw new Error(`${from} is not the loader that was expected (no /etc/ld.so.preload in it)`);
  bytes.write("/proc/0/no-preload", at, "latin1");
  writeFileSync(to, bytes);
  chmodSync(to, 0o755);
}

function compileLauncher(cc: string, machine: Machine, to: string): void {
  const source = join(import.meta.dir, "launcher/launcher.c");
  command([cc, "-Os", "-s", "-static", "-Wall", "-Wextra", `-DLOADER="${machine.loader}"`, "-o", to, source]);
}

function compileDaemon(machine: Machine, to: string): void {
  command([process.execPath, join(import.meta.dir, "bundle.ts"), machine.target, to]);
}

export interface BuildOptions {
  arch?: Arch;
  /** Default: dist/daemon, and dist/daemon-arm64 for the other machine. */
  out?: string;
}

/** Builds the daemon's folder where it is not up to date, and answers its path. A folder in use is replaced, not
 * changed: what is mounted from the old one goes on. Throws where the compilers are missing. */
export function buildDaemon({ arch = hostArch(), out }: BuildOptions = {}): string {
  const machine = MACHINES[arch];
  const folder = out ?? (arch === hostArch() ? DAEMON_FOLDER : `${DAEMON_FOLDER}-${arch}`);
  const cc = process.env.CC ?? (arch === hostArch() ? "cc" : `${machine.triplet}-gcc`);
  const print = fingerprint(arch, cc);
  const stamp = "fingerprint";
  if (existsSync(join(folder, stamp)) && readFileSync(join(folder, stamp), "utf8") === print) return folder;
  const draft = `${folder}.new-${process.pid}`;
  rmSync(draft, { recursive: true, force: true });
  mkdirSync(join(draft, "lib"), { recursive: true });
  try {
    copyLoader(libraryPath(cc, machine.loader), join(draft, "lib", machine.loader));
    for (const name of LIBRARIES) copyFileSync(libraryPath(cc, name), join(draft, "lib", name));
    copyFileSync(compileNative(join(ROOT, "dist/native"), cc), join(draft, NATIVE_NAME));
    compileLauncher(cc, machine, join(draft, "sandmesh-agent"));
    compileDaemon(machine, join(draft, "sandmesh-daemon"));
    writeFileSync(join(draft, stamp), print);
    replace(draft, folder);
  } finally {
    rmSync(draft, { recursive: true, force: true });
  }
  return folder;
}

function replace(draft: string, folder: string): void {
  const old = `${folder}.old-${process.pid}`;
  if (existsSync(folder)) renameSync(folder, old);
  renameSync(draft, folder);
  rmSync(old, { recursive: true, force: true });
}

function hostArch(): Arch {
  if (isArch(process.arch)) return process.arch;
  throw new Error(
    `sandmesh's daemon is built for ${Object.keys(MACHINES).join(" and ")}, not ${process.arch}`,
  );
}

if (import.meta.main) {
  const { values } = parseArgs({ options: { arch: { type: "string" }, out: { type: "string" } } });
  if (values.arch !== undefined && !isArch(values.arch)) {
    console.error(`--arch must be one of ${Object.keys(MACHINES).join(", ")}`);
    process.exit(2);
  }
  const began = performance.now();
  const options: BuildOptions = {};
  if (values.arch !== undefined) options.arch = values.arch;
  if (values.out !== undefined) options.out = values.out;
  const folder = buildDaemon(options);
  process.stderr.write(`  daemon: ${folder} (${Math.round(performance.now() - began)} ms)\n`);
}
