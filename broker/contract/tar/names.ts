// Files of several names in an archive that is written: later names become hard links to the first one. Pure.

export class FirstNames {
  /** By device and inode. */
  readonly #names = new Map<string, Buffer>();

  /** The name under which the file is in the archive already; otherwise it is `name` from now on. What fs.stat says with
   * `bigint`: a double does not hold every inode's number, and two of one number would become one file. */
  of({ dev, ino }: { dev: bigint; ino: bigint }, name: Buffer): Buffer | undefined {
    const key = `${dev}:${ino}`;
    const first = this.#names.get(key);
    if (first === undefined) this.#names.set(key, name);
    return first;
  }
}
