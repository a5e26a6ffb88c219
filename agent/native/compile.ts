// Compiles the native half with the machine's C compiler, once per content: the file's name carries the source's hash.
import { existsSync, mkdirSync, readFileSync, renameSync } from "node:fs";
import { join } from "node:path";

const SOURCES = [
  "engine.c",
  "start.c",
  "command.c",
  "launch.c",
  "daemon.c",
  "calls.c",
  "intake.c",
  "settle.c",
  "spare.c",
  "form.c",
  "gate.c",
].map((name) => join(import.meta.dir, name));
const HEADERS = ["engine.h", "spare.h"].map((name) => join(import.meta.dir, name));
const FLAGS = ["-O2", "-shared", "-fPIC", "-pthread", "-s", "-Wall", "-Wextra", "-fvisibility=hidden"];
export const NATIVE_NAME = "sandmesh-engine.so";

/** The path of the compiled library in `folder`; compiles it where it is not there yet. `cc` is the compiler's
 * command (cross compilers for other machines). Throws where the compiler is missing or refuses. */
export function compileNative(folder: string, cc = process.env.CC ?? "cc"): string {
  const hash = new Bun.CryptoHasher("sha256").update([cc, ...FLAGS].join("\0"));
  for (const path of [...HEADERS, ...SOURCES]) hash.update(readFileSync(path));
  const target = join(folder, `engine-${hash.digest("hex").slice(0, 16)}.so`);
  if (existsSync(target)) return target;
  mkdirSync(folder, { recursive: true });
  // Under another name first: a second process may compile at the same time, and must not load half a file.
  const draft = `${target}.${process.pid}`;
  const compiled = Bun.spawnSync([cc, ...FLAGS, "-o", draft, ...SOURCES], { stderr: "pipe" });
  if (compiled.exitCode !== 0)
    throw new Error(`${cc} could not compile the engine:\n${compiled.stderr.toString()}`);
  renameSync(draft, target);
  return target;
}

/** Where a checkout keeps it. */
export const checkoutNative = (): string => compileNative(join(import.meta.dir, "../../dist/native"));
