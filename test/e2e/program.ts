// The program as a person runs it, and a mesh of its own for the tests of one file.
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../../broker/server/testing.ts";
import type { Left } from "../../deploy/local/left.ts";
import type { UpOptions } from "../../deploy/local/supervisor.ts";
import { down, up } from "../../deploy/local/up.ts";

export const ROOT = join(import.meta.dir, "..", "..");
/** Its first words. */
export const PROGRAM: readonly string[] = [process.execPath, join(ROOT, "deploy", "sandmesh.ts")];
/** The same, in a line of a shell. */
export const PROGRAM_WORDS = PROGRAM.map((word) => `"${word}"`).join(" ");

export interface Ran {
  code: number;
  stdout: string;
  stderr: string;
}

/** Runs to its end, at most 60 s. */
export async function run(
  argv: string[],
  options: { env?: Record<string, string>; stdin?: string; cwd?: string } = {},
): Promise<Ran> {
  const child = Bun.spawn(argv, {
    cwd: options.cwd ?? ROOT,
    env: { ...process.env, ...options.env },
    stdin: options.stdin === undefined ? "ignore" : Buffer.from(options.stdin),
    stdout: "pipe",
    stderr: "pipe",
    timeout: 60_000,
  });
  const [stdout, stderr] = await Promise.all([
    new Response(child.stdout).text(),
    new Response(child.stderr).text(),
  ]);
  return { code: await child.exited, stdout, stderr };
}

export interface LocalMesh extends AsyncDisposable {
  home: string;
  url: string;
  credentials: string;
  /** `sandmesh ARGUMENTS…` against this mesh. */
  sandmesh(...args: string[]): Promise<Ran>;
  sandmeshWith(options: { stdin?: string; env?: Record<string, string> }, ...args: string[]): Promise<Ran>;
  /** Ends it; what it left. */
  end(): Promise<Left>;
}

export async function localMesh(options: UpOptions = {}): Promise<LocalMesh> {
  const home = await mkdtemp(join(tmpdir(), "sandmesh-e2e-"));
  // A test that is killed leaves none.
  const address = await up(home, { ...options, owned: true, temporary: true });
  const sandmeshWith: LocalMesh["sandmeshWith"] = ({ stdin, env }, ...args) =>
    run([...PROGRAM, ...args], {
      env: { SANDMESH_HOME: home, ...env },
      ...(stdin !== undefined && { stdin }),
    });
  let ended = false;
  const end = async () => {
    ended = true;
    const left = await down(home);
    await rm(home, { recursive: true, force: true });
    return left;
  };
  return {
    home,
    ...address,
    sandmesh: (...args) => sandmeshWith({}, ...args),
    sandmeshWith,
    end,
    async [Symbol.asyncDispose]() {
      if (!ended) await end();
    },
  };
}

/** `until` for what costs a process or a scan of /proc to ask: seldom, and longer. */
export async function eventually(
  what: string,
  holds: () => Promise<boolean> | boolean,
  limitMs = 20_000,
): Promise<void> {
  await until(what, holds, limitMs, 50);
}
