// Where the package is built.
import { expect, test } from "bun:test";
import { relative } from "node:path";
import { PACKAGE_FOLDER } from "./build.ts";
import { builtPackage } from "./testing/harness.ts";

test("a build of the package takes nothing from tests that run at the same time", async () => {
  expect(relative(PACKAGE_FOLDER, await builtPackage())).toStartWith("..");
}, 60_000);
