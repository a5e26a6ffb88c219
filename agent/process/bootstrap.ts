// What the daemon is started with: read from where the launcher or a person put it, checked, and gone from there.
import { closeSync, readFileSync } from "node:fs";
import { Bootstrap, check, InvalidRequestError } from "../../broker/contract/core.ts";

export interface BootstrapSource {
  /** A file, by name. */
  file?: string;
  /** A descriptor that the launcher keeps it in; closed after reading. */
  fd?: number;
  /** Environment variable SANDMESH_BOOTSTRAP. */
  text?: string;
}

/** Throws InvalidRequestError that says what is missing or wrong; never with the content, which is a secret. */
export function readBootstrap(source: BootstrapSource): Bootstrap {
  const text = readText(source);
  if (text === undefined)
    throw new InvalidRequestError("no bootstrap: set SANDMESH_BOOTSTRAP or give --bootstrap FILE", {
      field: "bootstrap",
    });
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new InvalidRequestError("the bootstrap is not JSON", { field: "bootstrap" });
  }
  return check(Bootstrap, value);
}

function readText({ file, fd, text }: BootstrapSource): string | undefined {
  if (fd !== undefined) {
    try {
      return readFileSync(fd, "utf8");
    } catch (thrown) {
      throw new InvalidRequestError(`cannot read the bootstrap from descriptor ${fd}`, {
        field: "bootstrap",
        cause: thrown,
      });
    } finally {
      closeSync(fd);
    }
  }
  if (file === undefined) return text;
  try {
    return readFileSync(file, "utf8");
  } catch (thrown) {
    const why = thrown instanceof Error ? thrown.message : String(thrown);
    throw new InvalidRequestError(`cannot read the bootstrap: ${why}`, { field: "bootstrap", cause: thrown });
  }
}
