import { afterEach, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Files } from "../../broker/endpoint/executor.ts";
import { testEngine, until } from "../exec/testing.ts";
import type { Folders } from "../native/folders.ts";
import { createFiles } from "./files.ts";
import { Listings } from "./listings.ts";
import { cleanUp, kept, scene } from "./testing.ts";
import { Choice } from "./window.ts";

let folders: Folders;
beforeAll(async () => {
  ({ folders } = await testEngine());
});
afterEach(cleanUp);

/** Those that the order by code units and that by bytes put differently, too. */
const names = (many: number): string[] =>
  Array.from({ length: many }, (_, i) => `${["a", "é", "\uff5e", "😀"][i % 4]}${(i * 7919) % many}`);

/** A later change has a later time. */
const settled = (folder: string): Promise<void> =>
  until("the folder's last change is some time ago", () => Date.now() - statSync(folder).ctimeMs > 50);

async function folderOf(all: readonly string[], at = scene().root): Promise<string> {
  for (const name of all) writeFileSync(join(at, name), "");
  await settled(at);
  return at;
}

async function listed(files: Files, limit: number, path = "."): Promise<string[]> {
  const all: string[] = [];
  for (let after: string | undefined; ; after = all.at(-1)) {
    const { entries, more } = await files.list(path, after, limit, kept);
    all.push(...entries.map((entry) => entry.path));
    if (!more) return all;
  }
}

describe("a window", () => {
  test("of any size holds the next names in order, whatever the order they come in", () => {
    const all = [...names(500), ...Array.from({ length: 20 }, () => "alike\ufffd")];
    const sorted = [...all].sort();
    for (const most of [40, 200, 3000, 1_000_000]) {
      const found: string[] = [];
      for (let from: string | undefined, isLast = false; !isLast; from = `${found.at(-1)}\0`) {
        const choice = new Choice(from, most);
        for (const name of all) choice.add(name, () => Buffer.from(name), 8);
        const window = choice.window();
        expect(window.bytes).toBeLessThanOrEqual(most);
        for (let i = 0; i < window.length; i++) found.push(window.name(i));
        ({ isLast } = window);
      }
      // So many that show alike do not fit the smallest.
      const within = most > 500 ? sorted : sorted.filter((name) => !name.startsWith("alike"));
      expect(found.filter((name) => most > 500 || !name.startsWith("alike"))).toEqual(within);
    }
  });
});

describe.each(["engine", "threads"])("a folder that is listed in pages, by the %s", (by) => {
  const filesAt = (cwd: string, listings: Listings): Files =>
    createFiles({ cwd, listings, ...(by === "engine" && { folders }) });

  test("is read once, however many pages it has, and nothing of it is kept behind the last", async () => {
    const all = names(1000);
    const root = await folderOf(all);
    const listings = new Listings();
    expect(await listed(filesAt(root, listings), 100)).toEqual([...all].sort());
    expect(listings.reads).toBe(1);
    expect(listings.bytes).toBe(0);
  });

  test("and does not fit is read once for each part that does", async () => {
    const all = names(1000);
    const root = await folderOf(all);
    const listings = new Listings({ windowBytes: 4 * 1024 });
    expect(await listed(filesAt(root, listings), 100)).toEqual([...all].sort());
    expect(listings.reads).toBeLessThan(10);
  });

  test("shows what came and went between its pages, and is read anew for that", async () => {
    const root = await folderOf(["a", "b", "d", "e", "f"]);
    const listings = new Listings();
    const files = filesAt(root, listings);
    expect((await files.list(".", undefined, 2, kept)).entries.map(({ path }) => path)).toEqual(["a", "b"]);
    writeFileSync(join(root, "c"), "");
    rmSync(join(root, "e"));
    const { entries, more } = await files.list(".", "b", 10, kept);
    expect([entries.map(({ path }) => path), more]).toEqual([["c", "d", "f"], false]);
    expect(listings.reads).toBe(2);
  });

  test("shows what is there at its first page, also where another list has just read it", async () => {
    const root = await folderOf(["a", "b", "c"]);
    const listings = new Listings();
    const files = filesAt(root, listings);
    await files.list(".", undefined, 1, kept);
    await files.list(".", undefined, 1, kept);
    expect(listings.reads).toBe(2);
  });

  test("is gone on with by a daemon that knows nothing of the page before", async () => {
    const all = names(200);
    const root = await folderOf(all);
    const { entries } = await filesAt(root, new Listings()).list(".", undefined, 150, kept);
    const after = entries.at(-1)?.path;
    const rest = await filesAt(root, new Listings()).list(".", after, 150, kept);
    expect([...entries, ...rest.entries].map(({ path }) => path)).toEqual([...all].sort());
  });

  test("keeps nothing for who does not ask for its next page in time", async () => {
    const root = await folderOf(names(200));
    const listings = new Listings({ keptMs: 2_000 });
    await filesAt(root, listings).list(".", undefined, 10, kept);
    expect(listings.bytes).toBeGreaterThan(0);
    await until("it is gone", () => listings.bytes === 0);
  });

  test("beside many others is whole, and all together keep no more than they may", async () => {
    const all = names(100);
    const { root } = scene();
    const inside = Array.from({ length: 10 }, (_, i) => join(root, `folder${i}`));
    for (const folder of inside) {
      mkdirSync(folder);
      for (const name of all) writeFileSync(join(folder, name), "");
    }
    await settled(inside.at(-1) ?? root);
    const listings = new Listings({ keptBytes: 4 * 1024 });
    const files = filesAt(root, listings);
    const most: number[] = [];
    const lists = inside.map(async (folder) => {
      const pages = await listed(files, 5, folder);
      most.push(listings.bytes);
      return pages;
    });
    for (const list of await Promise.all(lists)) expect(list).toEqual([...all].sort());
    expect(Math.max(...most)).toBeGreaterThan(0);
    expect(Math.max(...most)).toBeLessThanOrEqual(4 * 1024);
    // Of each there are 20 pages.
    expect(listings.reads).toBeLessThan(10 * 10);
  });
});

test("names that are not UTF-8 are listed and looked at in pages, by threads, too", async () => {
  const { root } = scene();
  const bad = [Buffer.from([0xff]), Buffer.from([0x62, 0xfe])];
  for (const name of bad) writeFileSync(Buffer.concat([Buffer.from(`${root}/`), name]), "x");
  await folderOf(["a", "c"], root);
  for (const files of [createFiles({ cwd: root, folders }), createFiles({ cwd: root })])
    expect(await listed(files, 1)).toEqual(["a", "b\ufffd", "c", "\ufffd"]);
});
