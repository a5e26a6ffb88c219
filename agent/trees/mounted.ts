// What is mounted in and around a tree, as it was when it was looked at.
import { type Mount, mounts } from "../files/mounts.ts";

/** Of what changes in these the kernel tells nothing, and /proc has no end. */
const UNTOLD = new Set("cgroup cgroup2 debugfs proc securityfs sysfs tracefs".split(" "));

export class Mounted {
  /** To some path at all. */
  readonly mayWait: boolean;
  readonly #root: string;
  readonly #untold: ReadonlySet<string>;
  readonly #waiting: readonly string[];

  /** `root` has no links in it, and no slash at its end. */
  constructor(root: string, all: readonly Mount[] = mounts()) {
    const isBelow = (at: string): boolean => at.startsWith(`${root}/`);
    const waiting = all.filter(({ mayWait }) => mayWait).map(({ at }) => at);
    this.#root = root;
    this.mayWait = waiting.length > 0;
    this.#waiting = waiting.filter((at) => isBelow(at) || `${root}/`.startsWith(`${at}/`));
    this.#untold = new Set(all.filter(({ at, type }) => UNTOLD.has(type) && isBelow(at)).map(({ at }) => at));
  }

  /** Whether something is mounted at that path below the root that tells nothing. */
  isUntold(path: string): boolean {
    return this.#untold.size > 0 && this.#untold.has(`${this.#root}/${path}`);
  }

  /** Whether what lies at that path below the root may be on a file system that does not answer. */
  mayWaitAt(path: string): boolean {
    if (this.#waiting.length === 0) return false;
    const full = `${this.#root}/${path}/`;
    return this.#waiting.some((at) => full.startsWith(`${at}/`));
  }
}
