// A folder that is watched, with those below it.
import type { Place } from "./inotify.ts";

/** What such folders make up. */
export interface Tree {
  /** `path` is the folder's, below the root; `mask` and `name` are of inotify(7). */
  event(folder: Folder, path: string, mask: number, name: string): void;
}

export class Folder implements Place {
  /** Undefined where it is in no tree any more. */
  parent: Folder | Tree | undefined;
  /** The root has the empty one. */
  readonly name: string;
  readonly wd: number;
  twin: Place | undefined;
  children: Map<string, Folder> | undefined;

  constructor(parent: Folder | Tree | undefined, name: string, wd: number) {
    this.parent = parent;
    this.name = name;
    this.wd = wd;
  }

  /** Below the root; undefined where it is in no tree any more. */
  path(): { of: Tree; path: string } | undefined {
    const names: string[] = [];
    let at: Folder | Tree | undefined = this;
    for (; at instanceof Folder; at = at.parent) if (at.name !== "") names.push(at.name);
    return at === undefined ? undefined : { of: at, path: names.reverse().join("/") };
  }

  event(mask: number, name: string): void {
    const found = this.path();
    found?.of.event(this, found.path, mask, name);
  }
}
