// How the ends of sandboxes become known: each supervisor leaves a file in `exits/`, and one watch on that folder
// sees them all, also those that a pool before this one made. Nothing is polled.
import { closeSync, constants, type FSWatcher, openSync, watch } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import type { ProviderEvent } from "../provider.ts";
import { Exit, type Layout, Meta, readRecord } from "./layout.ts";

const LOG_TAIL_BYTES = 2048;
type LostReason = Extract<ProviderEvent, { type: "lost" }>["reason"];

export const reasonOf = ({ expired, oom }: Exit): LostReason =>
  expired ? "deleted" : oom ? "oom" : "daemon_died";

export class ExitWatch {
  readonly #layout: Layout;
  readonly #isRemoving: (sandbox: string) => boolean;
  readonly #handlers = new Set<(event: ProviderEvent) => void>();
  /** Told already: a rename is more than one event. Forgotten with the sandbox. */
  readonly #told = new Set<string>();
  #watcher: FSWatcher | undefined;
  #folder: number | undefined;

  constructor(layout: Layout, isRemoving: (sandbox: string) => boolean) {
    this.#layout = layout;
    this.#isRemoving = isRemoving;
  }

  watch(handle: (event: ProviderEvent) => void): () => void {
    this.#handlers.add(handle);
    this.#watcher ??= this.#start();
    return () => {
      this.#handlers.delete(handle);
      if (this.#handlers.size === 0) this.close();
    };
  }

  /** By a descriptor: of a path, Bun's watch takes each backslash for a slash. */
  #start(): FSWatcher {
    this.#folder = openSync(this.#layout.exits, constants.O_RDONLY | constants.O_DIRECTORY);
    return watch(`/proc/self/fd/${this.#folder}`, (_, name) => {
      if (typeof name === "string" && !name.includes(".")) void this.#seen(name);
    });
  }

  tell(event: ProviderEvent): void {
    for (const handle of this.#handlers) handle(event);
  }

  async #seen(sandbox: string): Promise<void> {
    const exit = await readRecord(Exit, join(this.#layout.exits, sandbox));
    if (exit === undefined) {
      this.#told.delete(sandbox);
      return;
    }
    if (this.#told.has(sandbox) || this.#isRemoving(sandbox)) return;
    this.#told.add(sandbox);
    const folder = this.#layout.folder(sandbox);
    const meta = await readRecord(Meta, join(folder, "meta.json"));
    if (meta === undefined) return;
    const reason = reasonOf(exit);
    const how = exit.code < 0 ? `by signal ${-exit.code}` : `with ${exit.code}`;
    const who = exit.supervisor ? "supervisor" : "daemon";
    const why = exit.expired ? "its longest life is over" : `its ${who} ended ${how}`;
    const last = await tail(join(folder, "daemon.log"));
    const message = last === "" ? why : `${why}; its last words: ${last}`;
    this.tell({ type: "lost", sandbox, uid: meta.uid, reason, message });
  }

  close(): void {
    this.#watcher?.close();
    this.#watcher = undefined;
    if (this.#folder !== undefined) closeSync(this.#folder);
    this.#folder = undefined;
  }
}

async function tail(path: string): Promise<string> {
  try {
    await using file = await open(path);
    const { size } = await file.stat();
    const length = Math.min(size, LOG_TAIL_BYTES);
    const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, size - length);
    return buffer.toString("utf8", 0, bytesRead).trim();
  } catch {
    return "";
  }
}
