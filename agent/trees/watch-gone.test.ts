// Watches whose folder or file is gone, or another by now. Against the real kernel.
import { describe, expect, test } from "bun:test";
import { mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { until } from "../exec/testing.ts";
import { codeOf, kernelWatches, onTrees, type Reader } from "./testing.ts";

const own = onTrees();

describe("what is watched is gone", () => {
  const ended = async (reader: Reader): Promise<void> => {
    const read = async () => {
      for (;;) await reader.read();
    };
    expect(await codeOf(read())).toBe("not_found");
    await until("nothing is held", () => kernelWatches() === 0);
  };

  test("a folder that was removed is not waited for in vain", async () => {
    const reader = await own.reader();
    rmSync(own.root, { recursive: true });
    await ended(reader);
    expect(await codeOf(own.begin())).toBe("ENOENT");
    mkdirSync(own.root);
    await own.reader();
  });

  test("a folder that was moved and replaced is not taken for the one that is there", async () => {
    own.make("sub");
    const reader = await own.reader();
    renameSync(own.root, join(own.root, "../moved"));
    mkdirSync(own.root);
    await ended(reader);
  });

  const above = () => ({ here: join(own.root, ".."), away: `${join(own.root, "..")}-away` });

  test("a folder above that was renamed does not make what came at the new place a removal", async () => {
    const reader = await own.reader();
    const { here, away } = above();
    renameSync(here, away);
    writeFileSync(join(away, "root/still"), "x");
    own.put("fresh");
    await ended(reader);
    expect([...reader.told.keys()]).toEqual([]);
  });

  test("another at that path is not missed where nothing happens in what is watched", async () => {
    const reader = await own.reader();
    const { here, away } = above();
    renameSync(here, away);
    own.put("fresh");
    expect(await codeOf(reader.read(0))).toBe("not_found");
    await until("nothing is held", () => kernelWatches() === 0);
  });

  test("nor where it is a file, of which only what lies at its path is told", async () => {
    own.put("file");
    const reader = await own.reader("file");
    const { here, away } = above();
    renameSync(here, away);
    own.put("file", "another");
    expect(await codeOf(reader.read(0))).toBe("not_found");
  });

  test("a link that leads to another folder now is not taken for the one before", async () => {
    for (const name of ["one", "two"]) own.make(name);
    symlinkSync(own.at("one"), own.at("link"));
    const reader = await own.reader("link");
    symlinkSync(own.at("two"), own.at("next"));
    renameSync(own.at("next"), own.at("link"));
    own.put("one/still");
    await ended(reader);
    expect([...reader.told.keys()]).toEqual([]);
  });

  test("a folder that came while one above was away for a moment is not missed for ever", async () => {
    const reader = await own.reader();
    const { here, away } = above();
    renameSync(here, away);
    mkdirSync(join(away, "root/sub"));
    await until("it was looked at by its path, and the watch gave up", () => kernelWatches() === 0);
    renameSync(away, here);
    await ended(reader);
  });

  test("a file that an editor replaced is told of, and then begun anew; one that only changed goes on", async () => {
    own.put("file");
    const reader = await own.reader("file");
    Bun.spawnSync(["chmod", "600", own.at("file")]);
    await reader.until("file");
    reader.told.clear();
    own.put("file", "x");
    await reader.until("file");
    reader.told.clear();
    own.put("draft", "y");
    renameSync(own.at("draft"), own.at("file"));
    await reader.until("file");
    await ended(reader);
  });
});
