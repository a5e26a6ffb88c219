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

describe("a folder below that is replaced is told as removed, ahead of what is there now,", () => {
  /** What is told from the removal of `gone` to the change of `last`; where that took more than one answer, each once. */
  const toldOf = async (reader: Reader, gone: string, last: string): Promise<string[]> => {
    const told = reader.inOrder;
    const from = () => told.indexOf(`removed ${gone}`);
    while (from() < 0 || told.at(-1) !== `changed ${last}`) await reader.read();
    return [...new Set(told.slice(from()))];
  };
  const away = () => renameSync(own.at("sub"), own.at("../out"));
  const beside = () => {
    mkdirSync(own.at("../new"));
    writeFileSync(own.at("../new/last"), "");
  };
  const another = ["removed sub", "changed sub", "changed sub/last"];

  test("by one that is moved there", async () => {
    own.put("sub/deep/old");
    beside();
    const reader = await own.reader();
    away();
    renameSync(own.at("../new"), own.at("sub"));
    expect(await toldOf(reader, "sub", "sub/last")).toEqual(another);
  });

  test("by one that changes places with it", async () => {
    own.put("sub/deep/old");
    beside();
    const reader = await own.reader();
    const exchange = "import ctypes; exit(ctypes.CDLL(None).renameat2(-100, b'sub', -100, b'../new', 2))";
    expect(Bun.spawnSync(["python3", "-c", exchange], { cwd: own.root }).exitCode).toBe(0);
    expect(await toldOf(reader, "sub", "sub/last")).toEqual(another);
  });

  test("by one that is made there", async () => {
    own.put("sub/deep/old");
    const reader = await own.reader();
    away();
    own.put("sub/last");
    expect(await toldOf(reader, "sub", "sub/last")).toEqual(another);
  });

  test("by one that came when it was known already that it was away", async () => {
    own.put("sub/deep/old");
    const reader = await own.reader();
    away();
    await until("it is known", () => kernelWatches() === 1);
    own.put("sub/last");
    expect(await toldOf(reader, "sub", "sub/last")).toEqual(another);
  });

  test("by a file", async () => {
    own.put("sub/deep/old");
    const reader = await own.reader();
    away();
    own.put("sub");
    expect(await toldOf(reader, "sub", "sub")).toEqual(["removed sub", "changed sub"]);
  });

  test("in a folder that stays, which is not told as removed", async () => {
    own.put("sub/deep/old");
    const reader = await own.reader();
    renameSync(own.at("sub/deep"), own.at("../out"));
    own.put("sub/deep/last");
    const told = await toldOf(reader, "sub/deep", "sub/deep/last");
    expect(told).toEqual(["removed sub/deep", "changed sub/deep", "changed sub/deep/last"]);
    expect(reader.inOrder).not.toContain("removed sub");
  });

  test("and one that is only away is told once", async () => {
    own.put("sub/deep/old");
    const reader = await own.reader();
    away();
    await until("it is known", () => kernelWatches() === 1);
    own.put("last");
    expect(await toldOf(reader, "sub", "last")).toEqual(["removed sub", "changed last"]);
  });
});
