// The daemon's command line. By hand: the runtime's own parser takes 2 ms of each boot to load.
import { InvalidRequestError } from "../../broker/contract/core.ts";

/** `--name VALUE`, `--name=VALUE`, or `--flag`; the last of a name counts. Throws InvalidRequestError on anything else. */
export function readArguments<Text extends string, Flag extends string>(
  args: readonly string[],
  texts: readonly Text[],
  flags: readonly Flag[],
): { texts: Partial<Record<Text, string>>; flags: Set<Flag> } {
  const found: { texts: Partial<Record<Text, string>>; flags: Set<Flag> } = { texts: {}, flags: new Set() };
  const rest = [...args];
  for (let word = rest.shift(); word !== undefined; word = rest.shift()) {
    const [, name, given] = /^--([a-z-]+)(?:=([\s\S]*))?$/.exec(word) ?? [];
    const text = texts.find((each) => each === name);
    const flag = flags.find((each) => each === name);
    if (text !== undefined) {
      const value = given ?? rest.shift();
      if (value === undefined) throw new InvalidRequestError(`--${text} needs a value`, { field: text });
      found.texts[text] = value;
    } else if (flag !== undefined && given === undefined) found.flags.add(flag);
    else throw new InvalidRequestError(`there is no option ${word}`, { field: "options" });
  }
  return found;
}
