// Files with secrets in them, such as keys and `.creds`.
import { closeSync, fsyncSync, openSync, renameSync, writeFileSync } from "node:fs";

/** Writes a file whole or not at all, readable by the owner alone. The pid keeps two writers of one file from sharing a
 * draft. Throws the system's error. */
export function writePrivate(path: string, content: string): void {
  const draft = `${path}.${process.pid}.tmp`;
  const file = openSync(draft, "w", 0o600);
  try {
    writeFileSync(file, content);
    // Otherwise the new name may come to the disk before the content, and a power failure leaves it empty.
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  renameSync(draft, path);
}
