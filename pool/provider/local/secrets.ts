// What of this machine no sandbox is given: the mesh's keys, credentials and other sandboxes' files, and its services' sockets.
import { realPath } from "../../../broker/credentials/real-path.ts";
import { type Found, find, type Mount, mounts, ofServices, overlap, pathsTo } from "./places.ts";

/** To read what is mounted takes the kernel 0.3 ms with 50 mounts: for each of a burst's sandboxes that is much. */
const PATHS_MS = 1_000;

/** Folders, by whatever paths. */
export class Secrets {
  readonly #folders: readonly string[];
  #paths: { until: number; all: readonly string[] } = { until: 0, all: [] };

  constructor(folders: readonly string[]) {
    const real = [...new Set(folders.map(realPath))];
    this.#folders = real.filter((folder) => !real.some((other) => folder.startsWith(`${other}/`)));
  }

  /** What a path leads to now, and whether that is, holds or lies in one of them, or (who does not ask pays nothing for it) in
   * the services' folder; undefined where that is nothing. */
  look(path: string): (Found & { isSecret: boolean; isOfServices(): boolean }) | undefined {
    const all = mounts();
    const found = find(path, all);
    if (found === undefined) return undefined;
    const isSecret = this.#found(all).some(({ places }) => overlap(found.places, places));
    return { ...found, isSecret, isOfServices: () => overlap(found.places, ofServices(all)) };
  }

  /** All their paths, as of a second ago at most: a sandbox of image `host` sees by each what lies there. */
  paths(): readonly string[] {
    const now = performance.now();
    if (now < this.#paths.until) return this.#paths.all;
    const all = mounts();
    const paths = [...this.#folders, ...this.#found(all).flatMap((found) => pathsTo(found, all))];
    this.#paths = { until: now + PATHS_MS, all: [...new Set(paths)] };
    return this.#paths.all;
  }

  #found(all: readonly Mount[]): Found[] {
    return this.#folders.flatMap((folder) => find(folder, all) ?? []);
  }
}
