// Watches against the real kernel: what comes, goes and moves, and who is told.
import { describe, expect, spyOn, test } from "bun:test";
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CanceledError, encode, newUuidV7, type WatchAnswer } from "../../broker/contract/index.ts";
import { until } from "../exec/testing.ts";
import { codeOf, kernelWatches, onTrees } from "./testing.ts";

const own = onTrees();

describe("what is told", () => {
  test("tells what changed and what was removed, in sub-folders and in folders made meanwhile", async () => {
    own.put("sub/old");
    const reader = await own.reader();
    own.put("sub/new", "x");
    await reader.until("sub/new");
    rmSync(own.at("sub/old"));
    await reader.until("sub/old", "removed");
    own.make("made");
    await reader.until("made");
    own.put("made/inner", "x");
    await reader.until("made/inner");
  });

  test("a lost answer is told again by the same cursor; an older one and an ended watch are not found", async () => {
    const { cursor: first } = await own.begin();
    const next = async (cursor: string) => await own.trees.changes({ path: ".", cursor, waitMs: 10_000 });
    own.put("a");
    const answer = await next(first);
    expect(answer.changes).toEqual([{ path: "a", kind: "changed" }]);
    expect(await next(first)).toEqual(answer);
    own.put("b");
    await next(answer.cursor);
    expect(await codeOf(next(first))).toBe("not_found");
    own.trees.close();
    expect(await codeOf(next(answer.cursor))).toBe("not_found");
  });

  test("nothing that changes is answered in time, with nothing", async () => {
    const { cursor } = await own.begin();
    expect(await own.trees.changes({ path: ".", cursor, waitMs: 30 })).toEqual({
      cursor,
      changes: [],
      overflow: false,
    });
  });

  test("more than one read of the kernel's queue loses nothing", async () => {
    const reader = await own.reader();
    const names = Array.from({ length: 1500 }, (_, i) => `${i}`.padEnd(200, "x"));
    for (const name of names) own.put(name);
    for (const name of names) await reader.until(name);
    expect(reader.overflows).toBe(0);
  });

  test("one answer fits in one message, however long its paths are: what has no room is an overflow", async () => {
    const deep = Array.from({ length: 4 }, (_, i) => `${i}`.padEnd(250, "x")).join("/");
    own.make(deep);
    const { cursor } = await own.begin();
    for (let i = 0; i < 1_000; i++) own.put(`${deep}/${i}`);
    const answers: WatchAnswer[] = [];
    for (let at = cursor, overflow = false; !overflow; ) {
      const answer = await own.trees.changes({ path: ".", cursor: at, waitMs: 10_000 });
      answers.push(answer);
      ({ cursor: at, overflow } = answer);
    }
    for (const answer of answers) expect(encode(answer).byteLength).toBeLessThan(1024 * 1024);
  });

  test("what a folder had when it came is told, though it came before anyone could watch it", async () => {
    const reader = await own.reader();
    own.put("a/b/c/file");
    await reader.until("a/b/c/file");
    own.put("a/b/c/later");
    await reader.until("a/b/c/later");
  });

  test("a folder that is moved in is watched to its depth, one that is moved out no more", async () => {
    mkdirSync(join(own.root, "../away/deep"), { recursive: true });
    writeFileSync(join(own.root, "../away/deep/file"), "");
    const reader = await own.reader();
    renameSync(join(own.root, "../away"), own.at("here"));
    await reader.until("here/deep/file");
    own.put("here/deep/new");
    await reader.until("here/deep/new");
    expect(kernelWatches()).toBe(3);
    renameSync(own.at("here"), join(own.root, "../away"));
    await reader.until("here", "removed");
    await until("it is let go of", () => kernelWatches() === 1);
    reader.told.clear();
    writeFileSync(join(own.root, "../away/deep/unseen"), "");
    own.put("seen");
    await reader.until("seen");
    expect([...reader.told.keys()]).toEqual(["seen"]);
  });

  test("below a renamed folder changes are told by its new name, also where another has taken the old one", async () => {
    own.put("old/sub/file");
    const reader = await own.reader();
    renameSync(own.at("old"), own.at("new"));
    own.make("old/other");
    await reader.until("new/sub/file");
    await reader.until("old/other");
    reader.told.clear();
    own.put("new/sub/file", "x");
    own.put("old/other/file");
    await reader.until("new/sub/file");
    await reader.until("old/other/file");
    expect([...reader.told.keys()].sort()).toEqual(["new/sub/file", "old/other/file"]);
    expect(kernelWatches()).toBe(5);
  });

  test("a folder that is moved away and back in one go is still watched", async () => {
    own.make("a/b");
    const reader = await own.reader();
    renameSync(own.at("a"), own.at("../out"));
    renameSync(own.at("../out"), own.at("a"));
    await reader.until("a");
    own.put("a/b/file");
    await reader.until("a/b/file");
    expect(kernelWatches()).toBe(3);
  });

  test("a folder that is removed and made again is watched again", async () => {
    const reader = await own.reader();
    for (let round = 0; round < 20; round++) {
      own.put(`sub/deep/${round}`);
      await reader.until(`sub/deep/${round}`);
      rmSync(own.at("sub"), { recursive: true });
      // Every second time before it was looked at.
      if (round % 2 === 0) await reader.until("sub", "removed");
    }
    await reader.until("sub", "removed");
    await until("none of them is held", () => kernelWatches() === 1);
  });

  test("where events were lost that is told, and folders whose coming was lost are watched all the same", async () => {
    own.make("stays");
    const reader = await own.reader();
    const most = Number(readFileSync("/proc/sys/fs/inotify/max_queued_events", "utf8"));
    // In one turn, so that nobody reads meanwhile.
    for (let i = 0; i <= most / 2; i++) {
      writeFileSync(own.at("stays/f"), "");
      rmSync(own.at("stays/f"));
    }
    own.make("lost/deep");
    rmSync(own.at("stays"), { recursive: true });
    await reader.untilOverflow();
    await until("what is there is watched", () => kernelWatches() === 3);
    own.put("lost/deep/file");
    await reader.until("lost/deep/file");
  });

  test("where folders came or went while all was looked at again, that is told when they are watched", async () => {
    const reader = await own.reader();
    const most = Number(readFileSync("/proc/sys/fs/inotify/max_queued_events", "utf8"));
    for (let i = 0; i <= most / 2; i++) {
      writeFileSync(own.at("f"), "");
      rmSync(own.at("f"));
    }
    own.fill(300);
    const add = own.engine.folders.inotifyAdd.bind(own.engine.folders);
    const adding = spyOn(own.engine.folders, "inotifyAdd").mockImplementation((...args) => {
      // All of them take longer than the first answer.
      Bun.sleepSync(3);
      return add(...args);
    });
    try {
      await reader.untilOverflow();
      expect(kernelWatches()).toBeLessThan(301);
      for (let i = 0; i < 300; i++) own.put(`${i}/unseen`);
      while (reader.overflows < 2) await reader.read();
    } finally {
      adding.mockRestore();
    }
    expect(kernelWatches()).toBe(301);
  }, 30_000);

  test("a tree whose folders come faster than they can be looked at one by one is watched whole", async () => {
    const reader = await own.reader();
    const add = own.engine.folders.inotifyAdd.bind(own.engine.folders);
    const opening = spyOn(own.engine.folders, "open");
    let looks = 0;
    const adding = spyOn(own.engine.folders, "inotifyAdd").mockImplementation((...args) => {
      // The first one is of the first event, the others are of what was read by then, some 2,000. So slow a look takes a turn
      // of the loop: before they are done all others have come, no more than the kernel's queue holds.
      if (++looks > 1 && looks < 300) Bun.sleepSync(3);
      return add(...args);
    });
    try {
      own.fill(16_000);
      const isAll = () => opening.mock.calls.some(([path]) => path === `${own.root}/.`);
      await until("they are no more looked at one by one", isAll, 30_000);
    } finally {
      adding.mockRestore();
      opening.mockRestore();
    }
    await until("all are watched", () => kernelWatches() === 16_001, 30_000);
    own.put("15999/file");
    await reader.until("15999/file");
  }, 60_000);

  test("names that are no UTF-8 stop nothing", async () => {
    Bun.spawnSync(["bash", "-c", "mkdir $'\\xff'"], { cwd: own.root });
    const reader = await own.reader();
    Bun.spawnSync(["bash", "-c", "mkdir -p $'\\xfe/x'; : > $'\\xfe/x/f'; : > $'f\\xfe'"], { cwd: own.root });
    own.put("sub/file");
    await reader.until("sub/file");
  });

  test("a link to a folder is not entered, nor counted", async () => {
    Bun.spawnSync(["ln", "-s", "/usr", own.at("link")]);
    const reader = await own.reader();
    Bun.spawnSync(["ln", "-s", "/usr", own.at("another")]);
    await reader.until("another");
    expect(kernelWatches()).toBe(1);
  });

  test("two watches of one folder both hear, and the end of one takes nothing from the other", async () => {
    own.make("sub/deep");
    const [outer, inner] = [await own.reader("."), await own.reader("sub")];
    const transfer = newUuidV7();
    const abort = new AbortController();
    const third = own.begin("sub", { transfer, signal: abort.signal });
    abort.abort(new CanceledError("taken back"));
    expect(await codeOf(third)).toBe("canceled");
    own.put("sub/deep/file");
    await Promise.all([outer.until("sub/deep/file"), inner.until("deep/file")]);
    expect(kernelWatches()).toBe(3);
  });

  test("without sub-folders only the folder itself is watched", async () => {
    own.make("sub");
    const reader = await own.reader(".", false);
    own.put("sub/unseen");
    own.put("seen");
    await reader.until("seen");
    expect([[...reader.told.keys()], kernelWatches()]).toEqual([["seen"], 1]);
  });
});

describe("who asks beside another", () => {
  const ask = async (cursor: string, waitMs = 20_000) =>
    await own.trees.changes({ path: ".", cursor, waitMs });

  test("is told of a change at once, also where the other had nothing in its time", async () => {
    const { cursor } = await own.begin();
    const [short, long] = [ask(cursor, 10), ask(cursor)];
    expect((await short).changes).toEqual([]);
    own.put("a");
    expect((await long).changes).toEqual([{ path: "a", kind: "changed" }]);
  });

  test("does not keep from a later change whoever was told of the one before", async () => {
    const { cursor } = await own.begin();
    const [first, second] = [ask(cursor, 500), ask(cursor)];
    own.put("a");
    const told = await second;
    const next = ask(told.cursor);
    expect(await first).toEqual(told);
    own.put("b");
    expect((await next).changes).toEqual([{ path: "b", kind: "changed" }]);
  });

  test("keeps the watch, though the other has had its answer long ago", async () => {
    own.renew({ watchIdleMs: 50 });
    const { cursor } = await own.begin();
    await Promise.all([ask(cursor, 10), ask(cursor, 200)]);
    expect((await ask(cursor, 0)).cursor).toBe(cursor);
  });

  test("is not told a later turn in place of the one that it asked for", async () => {
    const { cursor } = await own.begin();
    const late = Promise.withResolvers<void>();
    const sleep = Bun.sleep.bind(Bun);
    const slow = ask(cursor);
    let isWoken = false;
    // The first that is woken goes on behind the others.
    const sleeping = spyOn(Bun, "sleep").mockImplementation(async (ms) => {
      if (isWoken || ms !== 20) return await sleep(ms);
      isWoken = true;
      await late.promise;
    });
    try {
      own.put("a");
      await until("the slow one is woken", () => isWoken);
      const told = await ask(cursor);
      expect(told.changes).toEqual([{ path: "a", kind: "changed" }]);
      own.put("b");
      await ask(told.cursor);
    } finally {
      late.resolve();
      sleeping.mockRestore();
    }
    expect(await codeOf(slow)).toBe("not_found");
  });
});

describe("a name", () => {
  test("of a watch without sub-folders does not get whoever asks for all of them that one", async () => {
    const transfer = newUuidV7();
    await own.begin(".", { transfer, recursive: false });
    const another = own.begin(".", { transfer, recursive: true }).catch((error: unknown) => error);
    expect(await another).toMatchObject({ code: "invalid_request", field: "transfer" });
  });
});

describe("an end", () => {
  test("that is asked for comes at once, also for whoever waits for a change, and takes no other watch along", async () => {
    own.make("sub");
    const transfer = newUuidV7();
    const other = await own.reader("sub");
    const { cursor } = await own.begin(".", { transfer });
    const waiting = own.trees.changes({ path: ".", cursor, waitMs: 20_000 });
    expect(await own.trees.endWatch(transfer)).toBe(true);
    expect((await waiting).changes).toEqual([]);
    expect(await codeOf(own.trees.changes({ path: ".", cursor, waitMs: 0 }))).toBe("not_found");
    expect(kernelWatches()).toBe(1);
    expect(await own.trees.endWatch(transfer)).toBe(false);
    own.put("sub/file");
    await other.until("file");
  });
});
