// Files with secrets in them, such as keys and `.creds`.
import { renameSync, writeFileSync } from "node:fs";

/** Writes a file whole or not at all, readable by the owner alone. The pid keeps two writers of one file from sharing a
 * draft. Throws the system's error. */
export function writePrivate(path: string, content: string): void {
  const draft = `${path}.${process.pid}.tmp`;
  writeFileSync(draft, content, { mode: 0o600 });
  renameSync(draft, path);
}
