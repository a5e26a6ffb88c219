// Pages of a glob, from a sandbox played by the test, over real connections.
import { expect, test } from "bun:test";
import { played, SANDBOX } from "../testing/played.ts";

test("a page without a path is not taken for the end, and a daemon that gives no cursor is asked on by paths", async () => {
  const pages = [
    { paths: [], more: true, cursor: "a" },
    { paths: ["b"], more: true, cursor: "c" },
    { paths: ["d"], more: true },
    { paths: [], more: false },
  ];
  await using sandbox = await played(({ verb }) => (verb === "glob" ? pages.splice(0, 1) : undefined));
  expect(await sandbox.mesh.sandbox(SANDBOX).files.glob("**/x")).toEqual(["b", "d"]);
  const from = sandbox.asked.map(({ body: { cursor, after } }) => [cursor, after]);
  expect(from).toEqual([
    ["", undefined],
    ["a", undefined],
    ["c", undefined],
    [undefined, "d"],
  ]);
});
