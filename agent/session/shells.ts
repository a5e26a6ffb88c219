// Which program a session's shell is, and how it is driven.
import { accessSync, constants, realpathSync, statSync } from "node:fs";
import { basename } from "node:path";
import { InvalidRequestError, NotFoundError } from "../../broker/contract/index.ts";
import { findShells } from "../exec/shell.ts";
import { type Dialect, dialectOf, pythonDialect, SHELL_DIALECTS } from "./dialect.ts";
import { PYTHON_DRIVER } from "./python.ts";

export interface SessionShell {
  /** Its path, and its applet where it is busybox without links. */
  argv: string[];
  dialect: Dialect;
  /** Python's text takes no subshell. */
  python: boolean;
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

function known(found: string[], asked: string): SessionShell {
  const [path = ""] = found;
  // Called by its own name, busybox wants to know which of its programs it is to be.
  const argv = found.length === 1 && basename(path) === "busybox" ? [path, "ash"] : found;
  // `sh` is whatever the image links it to.
  const name = dialectOf(basename(realpathSync(path))) ?? dialectOf(basename(path));
  if (name === undefined)
    throw new InvalidRequestError(
      `${asked} is not a shell that sessions know: bash, dash, ash, zsh, python3`,
      {
        field: "shell",
      },
    );
  const python = name === "python";
  return { argv, python, dialect: python ? pythonDialect(PYTHON_DRIVER) : SHELL_DIALECTS[name] };
}

/** The shell by name (looked for in `path`, as PATH) or by path; without one the image's best. Throws NotFoundError
 * where the image has none such, InvalidRequestError where sessions cannot drive it. */
export function findSessionShell(asked: string | undefined, path: string | undefined): SessionShell {
  if (asked?.startsWith("/")) {
    if (isProgram(asked)) return known([asked], asked);
    throw new NotFoundError(`${asked} is not a program of this image`, { field: "shell" });
  }
  const shells = findShells(path);
  if (asked === undefined) {
    const [best] = shells;
    if (best === undefined) throw new NotFoundError("the image has no shell", { field: "shell" });
    return known(best.argv, best.name);
  }
  if (asked.includes("/"))
    throw new InvalidRequestError(`${asked}: give a shell's name or its full path`, { field: "shell" });
  const folders = [...(path ?? "").split(":"), "/bin", "/usr/bin", "/usr/local/bin"];
  for (const folder of folders)
    if (folder.startsWith("/") && isProgram(`${folder}/${asked}`))
      return known([`${folder}/${asked}`], asked);
  const busybox = shells.find(({ argv }) => argv.length > 1);
  if ((asked === "sh" || asked === "ash") && busybox !== undefined) return known(busybox.argv, asked);
  throw new NotFoundError(
    `the image has no ${asked}; it has ${shells.map((s) => s.name).join(", ") || "no shell"}`,
    {
      field: "shell",
    },
  );
}
