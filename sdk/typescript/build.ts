// Builds the package for Node: `bun sdk/typescript/build.ts [folder]` (default: dist beside this file). ES modules,
// the renewing thread's file beside them, and declarations; dependencies stay dependencies, but of the thread's file. Each file
// is whole: in one that both shared, the bundler gave every name that is public a number (`NoMeshError2`).
import { execFileSync } from "node:child_process";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";

const HERE = import.meta.dir;
const ROOT = join(HERE, "..", "..");
/** Emptied by each build into it, also under whoever runs from there. */
export const PACKAGE_FOLDER = join(HERE, "dist");

/** Throws where it does not build. */
export async function build(folder: string): Promise<void> {
  await bundle(join(HERE, "mod.ts"), folder);
  await declarations(join(folder, "types"));
}

/** A module that has the SDK in it, as one file, and the renewing thread's beside it. Answers the first one's path. */
export async function bundle(entry: string, folder: string): Promise<string> {
  await rm(folder, { recursive: true, force: true });
  await mkdir(folder, { recursive: true });
  await bundleOne(entry, folder, "external");
  // The thread's file has all that it needs in it: it is to be put beside a bundle that may be far from any package.
  await bundleOne(join(HERE, "renew", "worker.ts"), folder, "bundle");
  const file = join(folder, `${basename(entry, ".ts")}.js`);
  await nameWorker(file);
  return file;
}

async function bundleOne(entry: string, folder: string, packages: "external" | "bundle"): Promise<void> {
  await Bun.build({
    entrypoints: [entry],
    outdir: folder,
    target: "node",
    format: "esm",
    packages,
    sourcemap: "linked",
    naming: "[name].[ext]",
  });
}

/** Bundlers look for the file that is named. As long as before, so that the source map stays true. */
async function nameWorker(file: string): Promise<void> {
  const [before, after, ...more] = (await readFile(file, "utf8")).split('"./worker.ts"');
  if (before === undefined || after === undefined || more.length > 0)
    throw new Error(`${file} does not name the renewing thread's file once`);
  await writeFile(file, `${before}"./worker.js"${after}`);
}

async function declarations(folder: string): Promise<void> {
  const settings = {
    extends: join(ROOT, "tsconfig.json"),
    compilerOptions: {
      noEmit: false,
      declaration: true,
      emitDeclarationOnly: true,
      outDir: folder,
      rootDir: ROOT,
      typeRoots: [join(ROOT, "node_modules", "@types")],
    },
    include: [],
    files: [join(HERE, "mod.ts")],
  };
  await mkdir(folder, { recursive: true });
  const config = join(folder, "tsconfig.json");
  await writeFile(config, JSON.stringify(settings));
  execFileSync(join(ROOT, "node_modules", ".bin", "tsc"), ["--project", config], { stdio: "inherit" });
  await rm(config);
  for (const name of await readdir(folder, { recursive: true })) {
    if (!name.endsWith(".d.ts")) continue;
    const file = join(folder, name);
    await writeFile(file, forReaders(await readFile(file, "utf8")));
  }
}

/** A declaration as all compilers from 5.2 on read it: typed arrays have a parameter since 5.7 only, and imports of `.ts`
 * must be allowed. */
const forReaders = (text: string): string =>
  text
    .replaceAll(/\b(\w+Array|Buffer)<(?:Shared)?ArrayBuffer(?:Like)?>/g, "$1")
    .replaceAll(/((?:from|import\()\s*["']\.[^"']*)\.ts(["'])/g, "$1.js$2");

if (import.meta.main) await build(process.argv[2] ?? PACKAGE_FOLDER);
