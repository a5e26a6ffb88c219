// `bun agent/bundle.ts TARGET FILE`: the daemon's program with the runtime in it. A process of its own, since Bun's bundler
// only answers later, and the build (build.ts) does not wait otherwise.
import { chmodSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { BunPlugin } from "bun";
import { withoutZeros } from "./without-zeros.ts";

/** What the package `nats` signs with. A link signs by itself (broker/credentials); each start would evaluate it. */
const withoutSigner: BunPlugin = {
  name: "without-signer",
  setup: (build) => {
    build.onLoad({ filter: /nats-base-client\/nkeys\.js$/ }, () => ({
      contents: "exports.nkeys = {};",
      loader: "js",
    }));
  },
};

async function bundle(target: Bun.Build.CompileTarget, outfile: string): Promise<void> {
  await Bun.build({
    entrypoints: [join(import.meta.dir, "main.ts")],
    // Split, so that a start reads neither what is loaded later nor the modules of the runtime that only that needs.
    splitting: true,
    format: "esm",
    minify: true,
    bytecode: true,
    compile: { target, outfile, autoloadDotenv: false, autoloadBunfig: false },
    plugins: [withoutSigner],
  });
  writeFileSync(outfile, withoutZeros(readFileSync(outfile)));
  chmodSync(outfile, 0o755);
}

if (import.meta.main) {
  const [target = "", outfile = ""] = process.argv.slice(2);
  await bundle(target as Bun.Build.CompileTarget, outfile);
}
