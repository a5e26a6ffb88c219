// The file of the operator's and accounts' keys, of a mesh on this machine or of one elsewhere.
import { errnoOf, InvalidRequestError, toSandmeshError } from "../contract/index.ts";
import { readBounded } from "../credentials/bounded-file.ts";
import { writePrivate } from "../credentials/private-file.ts";
import { createOperatorKeys, type OperatorKeys, parseOperatorKeys } from "./operator.ts";

export interface KeysFile {
  keys: OperatorKeys;
  /** Whether they were there before there were operators: servers that run do not know this role yet. */
  added: boolean;
}

/** Undefined where there is no such file. Throws InvalidRequestError that names the file and says what to `mend`. */
export function readKeys(path: string, mend: string): KeysFile | undefined {
  let text: string;
  try {
    text = readBounded(path, "keys");
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return undefined;
    throw error;
  }
  try {
    return parseOperatorKeys(text);
  } catch (cause) {
    throw new InvalidRequestError(`${path} is damaged (${toSandmeshError(cause).message}): ${mend}`, {
      cause,
    });
  }
}

/** Those of the file, made where there is none; what they lack is added, and kept. Throws as `readKeys` does. */
export function keepKeys(path: string, mend: string): KeysFile {
  const found = readKeys(path, mend);
  const file = found ?? { keys: createOperatorKeys(), added: false };
  if (found === undefined || found.added) writePrivate(path, JSON.stringify(file.keys));
  return file;
}
