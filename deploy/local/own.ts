// A mesh for as long as something of this process runs: quickstart's, and the benchmarks'.
import { constants } from "node:os";
import { ENDING_SIGNALS } from "../../sdk/typescript/exit.ts";
import type { Left } from "./left.ts";
import type { MeshAddress, UpOptions } from "./supervisor.ts";
import { down, up } from "./up.ts";

export interface OwnMesh {
  home: string;
  /** With `temporary`, the home goes with the mesh where this process can remove it no more. */
  options?: UpOptions;
  /** What it left, once it is down: also where a signal has ended it, and then before this process ends. */
  down(left: Left): void | Promise<void>;
}

/** Starts a mesh, calls `use`, and ends the mesh. A signal ends it, too, and then this process by the code that shells have
 * for that signal. However this process dies, the mesh ends with it. */
export async function withMesh<T>(mesh: OwnMesh, use: (address: MeshAddress) => Promise<T>): Promise<T> {
  let ending: Promise<void> | undefined;
  const end = (): Promise<void> => {
    ending ??= down(mesh.home).then((left) => mesh.down(left));
    return ending;
  };
  const signals = endOnSignals(end);
  let isUp = false;
  try {
    const address = await up(mesh.home, { ...mesh.options, owned: true });
    isUp = true;
    return await use(address);
  } finally {
    // A signal that comes while it ends waits for that, too.
    if (isUp) await end();
    await signals.ended();
  }
}

/** `ended` never comes back where a signal came before: this process ends then. */
function endOnSignals(end: () => Promise<void>): { ended(): Promise<void> } {
  let interrupted = false;
  const onSignal = async (signal: (typeof ENDING_SIGNALS)[number]): Promise<void> => {
    // Ctrl-C reaches this process from its terminal and by who started it.
    if (interrupted) return;
    interrupted = true;
    // A terminal that hung up takes no more words.
    process.stderr.on("error", () => {});
    process.stderr.write(`\n${signal}: ending the mesh\n`);
    try {
      await end();
    } finally {
      process.exit(128 + constants.signals[signal]);
    }
  };
  for (const signal of ENDING_SIGNALS) process.on(signal, onSignal);
  return {
    async ended() {
      if (interrupted) await new Promise(() => {});
      for (const signal of ENDING_SIGNALS) process.off(signal, onSignal);
    },
  };
}
