// For tests of trees: a folder for each, and what the kernel watches for this process.
import { afterAll, afterEach, beforeAll, beforeEach } from "bun:test";
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { WatchAnswer } from "../../broker/contract/index.ts";
import type { Trees } from "../../broker/endpoint/executor.ts";
import { testEngine, until } from "../exec/testing.ts";
import type { Engine } from "../native/engine.ts";
import { createTrees, type TreesOptions } from "./trees.ts";

/** Nobody takes it back. */
export const never = new AbortController().signal;

export const codeOf = async (work: Promise<unknown>): Promise<unknown> =>
  await work.then(
    () => "nothing was thrown",
    (error: { reason?: string; code: string }) => error.reason ?? error.code,
  );

/** Folders and files; 0 where it has no inotify instance. (The engine may have a second descriptor of the one.) */
export function kernelWatches(): number {
  let most = 0;
  for (const fd of readdirSync("/proc/self/fd")) {
    try {
      if (readlinkSync(`/proc/self/fd/${fd}`) !== "anon_inode:inotify") continue;
      most = Math.max(most, readFileSync(`/proc/self/fdinfo/${fd}`, "utf8").split("inotify wd:").length - 1);
    } catch {
      // That of the listing itself, which is closed by now.
    }
  }
  return most;
}

/** Reads a watch; what was told last of each path stays. */
export class Reader {
  readonly #trees: Trees;
  readonly path: string;
  cursor: string;
  readonly told = new Map<string, string>();
  /** All that was told, as "changed a/path". */
  readonly inOrder: string[] = [];
  overflows = 0;

  constructor(trees: Trees, path: string, cursor: string) {
    this.#trees = trees;
    this.path = path;
    this.cursor = cursor;
  }
  async read(waitMs = 10_000): Promise<void> {
    const answer = await this.#trees.changes({ path: this.path, cursor: this.cursor, waitMs });
    if (answer.overflow) this.overflows++;
    for (const { path, kind } of answer.changes) {
      this.told.set(path, kind);
      this.inOrder.push(`${kind} ${path}`);
    }
    if (answer.cursor === this.cursor)
      throw new Error(`no more came; told were ${[...this.told.keys()].join(" ")}`);
    this.cursor = answer.cursor;
  }
  async until(path: string, kind = "changed"): Promise<void> {
    while (this.told.get(path) !== kind) await this.read();
  }
  async untilOverflow(): Promise<void> {
    while (this.overflows === 0) await this.read();
  }
}

/** A folder for each test of a file, beside nothing else, and the trees whose relative paths begin there. */
export function onTrees() {
  let folder: string;
  let engine: Engine;
  let root: string;
  let trees: Trees;
  let count = 0;
  beforeAll(async () => {
    engine = await testEngine();
    folder = mkdtempSync(join(tmpdir(), "trees-test-"));
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }), 60_000);
  beforeEach(() => {
    root = join(folder, String(count++), "root");
    mkdirSync(root, { recursive: true });
    trees = createTrees({ cwd: root, engine });
  });
  afterEach(async () => {
    trees.close();
    await until("its watches are gone", () => kernelWatches() === 0);
  });
  const at = (path: string): string => join(root, path);
  const make = (path: string): void => void mkdirSync(at(path), { recursive: true });
  const begin = async (
    path = ".",
    options: { recursive?: boolean; transfer?: string; signal?: AbortSignal } = {},
  ): Promise<WatchAnswer> => await trees.watch({ path, recursive: true, signal: never, ...options });
  return {
    get root() {
      return root;
    },
    get trees() {
      return trees;
    },
    get engine() {
      return engine;
    },
    /** Others in place of those that were made. */
    renew(options: Partial<TreesOptions>): void {
      trees = createTrees({ cwd: root, engine, ...options });
    },
    at,
    make,
    put(path: string, content: string | Uint8Array = ""): void {
      make(join(path, ".."));
      writeFileSync(at(path), content);
    },
    /** `many` folders, side by side. */
    fill(many: number): void {
      for (let i = 0; i < many; i++) mkdirSync(at(String(i)));
    },
    begin,
    async reader(path = ".", recursive = true): Promise<Reader> {
      const watched = trees;
      return new Reader(watched, path, (await begin(path, { recursive })).cursor);
    },
  };
}
