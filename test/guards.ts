// Which test guards against what: for lists of what may not happen.
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";

/** What went wrong elsewhere → the file and name of a test against it. */
export type Guards = Record<string, readonly [file: string, name: string][]>;

/** A test for each, which fails where the one that is named is not there any more. */
export function stillTested(guards: Guards): void {
  const cases = Object.entries(guards).flatMap(([failure, tests]) =>
    tests.map(([file, name]) => [failure, file, name] as const),
  );
  test.each(cases)("%s: %s still tests it", (_, file, name) => {
    expect(readFileSync(join(import.meta.dir, "..", file), "utf8")).toContain(name);
  });
}
