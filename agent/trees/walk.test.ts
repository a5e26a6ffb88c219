// How much a glob in pages reads.
import { describe, expect, test } from "bun:test";
import { statSync } from "node:fs";
import type { Trees } from "../../broker/endpoint/executor.ts";
import { until } from "../exec/testing.ts";
import { Listings } from "../files/listings.ts";
import { never, onTrees } from "./testing.ts";

const own = onTrees();

/** All pages, and how many there were. */
async function globbed(trees: Trees, limit: number): Promise<{ paths: string[]; pages: number }> {
  const paths: string[] = [];
  for (let pages = 1, cursor: string | undefined = ""; ; pages++) {
    const request = { path: ".", pattern: "**", hidden: false, limit, cursor, signal: never };
    const page = await trees.glob(request);
    paths.push(...page.paths);
    cursor = page.cursor;
    if (cursor === undefined) return { paths, pages };
  }
}

/** Folders with folders in them, beside many files; answers how many folders there are. */
async function put(): Promise<number> {
  for (let i = 0; i < 30; i++) for (const name of ["x", "y", "z"]) own.put(`b/${i}/${name}`);
  for (let i = 0; i < 200; i++) own.put(`c${i}`);
  await until("the last change is some time ago", () => Date.now() - statSync(own.root).ctimeMs > 50);
  return 32;
}

describe.each(["engine", "walk"] as const)("a glob in pages, by the %s", (by) => {
  const beneath = () => (by === "engine" ? own.engine.folders : by);

  test("reads no folder for each page anew, however many pages end in it or below it", async () => {
    const folders = await put();
    for (const root of [undefined, "."]) {
      const listings = new Listings();
      own.renew({ listings, beneath: beneath() });
      const trees = root === undefined ? own.trees : own.trees.beneath(root);
      const { paths, pages } = await globbed(trees, 5);
      expect([paths.length, pages]).toEqual([31 + 90 + 200, 65]);
      // Twice where a page ended in its last: that it was the last shows by what comes behind it.
      expect(listings.reads).toBeLessThanOrEqual(2 * folders);
      expect(listings.bytes).toBe(0);
    }
  });

  test("finds the same where folders do not fit what is held of one", async () => {
    await put();
    own.renew({ listings: new Listings(), beneath: beneath() });
    const whole = await globbed(own.trees, 1000);
    const listings = new Listings({ windowBytes: 300, keptBytes: 1000 });
    own.renew({ listings, beneath: beneath() });
    expect((await globbed(own.trees, 7)).paths).toEqual(whole.paths);
    expect((await globbed(own.trees, 1000)).paths).toEqual(whole.paths);
  });
});
