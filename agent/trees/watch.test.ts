// Watches against the real kernel: what comes, goes and moves, and what becomes of that which they hold.
import { afterAll, beforeAll, beforeEach, describe, expect, spyOn, test } from "bun:test";
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CanceledError, newUuidV7 } from "../../broker/contract/index.ts";
import type { Trees } from "../../broker/endpoint/executor.ts";
import { testEngine, until } from "../exec/testing.ts";
import type { Engine } from "../native/engine.ts";
import { Inotify } from "./inotify.ts";
import { kernelWatches } from "./testing.ts";
import { createTrees } from "./trees.ts";

/** Nobody takes it back. */
const never = new AbortController().signal;

let folder: string;
let root: string;
let trees: Trees;
let engine: Engine;
beforeAll(async () => {
  engine = await testEngine();
  folder = mkdtempSync(join(tmpdir(), "watch-test-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }), 60_000);
let count = 0;
beforeEach(async () => {
  trees?.close();
  await until("the watches of the test before are gone", () => kernelWatches() === 0);
  root = join(folder, String(count++), "root");
  mkdirSync(root, { recursive: true });
  trees = createTrees({ cwd: root, engine });
});
afterAll(() => trees.close());

const at = (path: string): string => join(root, path);
const make = (path: string): void => void mkdirSync(at(path), { recursive: true });
const put = (path: string, content = ""): void => {
  make(join(path, ".."));
  writeFileSync(at(path), content);
};
/** `many` folders, side by side. */
const fill = (many: number): void => {
  for (let i = 0; i < many; i++) mkdirSync(at(String(i)));
};
const codeOf = async (work: Promise<unknown>): Promise<unknown> =>
  await work.then(
    () => "nothing was thrown",
    (error: { reason?: string; code: string }) => error.reason ?? error.code,
  );
const begin = async (
  path = ".",
  options: { recursive?: boolean; transfer?: string; signal?: AbortSignal } = {},
) => await trees.watch({ path, recursive: true, signal: never, ...options });

/** Reads a watch; what was told last of each path stays. */
class Reader {
  readonly path: string;
  cursor = "";
  readonly told = new Map<string, string>();
  overflows = 0;

  constructor(path: string) {
    this.path = path;
  }
  static async of(path = ".", recursive = true): Promise<Reader> {
    const reader = new Reader(path);
    reader.cursor = (await begin(path, { recursive })).cursor;
    return reader;
  }
  async read(waitMs = 10_000): Promise<void> {
    const answer = await trees.changes({ path: this.path, cursor: this.cursor, waitMs });
    if (answer.overflow) this.overflows++;
    for (const { path, kind } of answer.changes) this.told.set(path, kind);
    if (answer.cursor === this.cursor)
      throw new Error(`no more came; told were ${[...this.told.keys()].join(" ")}`);
    this.cursor = answer.cursor;
  }
  async until(path: string, kind = "changed"): Promise<void> {
    while (this.told.get(path) !== kind) await this.read();
  }
  async untilOverflow(): Promise<void> {
    while (this.overflows === 0) await this.read();
  }
}

describe("what is told", () => {
  test("tells what changed and what was removed, in sub-folders and in folders made meanwhile", async () => {
    put("sub/old");
    const reader = await Reader.of();
    put("sub/new", "x");
    await reader.until("sub/new");
    rmSync(at("sub/old"));
    await reader.until("sub/old", "removed");
    make("made");
    await reader.until("made");
    put("made/inner", "x");
    await reader.until("made/inner");
  });

  test("a lost answer is told again by the same cursor; an older one and an ended watch are not found", async () => {
    const { cursor: first } = await begin();
    const next = async (cursor: string) => await trees.changes({ path: ".", cursor, waitMs: 10_000 });
    put("a");
    const answer = await next(first);
    expect(answer.changes).toEqual([{ path: "a", kind: "changed" }]);
    expect(await next(first)).toEqual(answer);
    put("b");
    await next(answer.cursor);
    expect(await codeOf(next(first))).toBe("not_found");
    trees.close();
    expect(await codeOf(next(answer.cursor))).toBe("not_found");
  });

  test("nothing that changes is answered in time, with nothing", async () => {
    const { cursor } = await begin();
    expect(await trees.changes({ path: ".", cursor, waitMs: 30 })).toEqual({
      cursor,
      changes: [],
      overflow: false,
    });
  });

  test("more than one read of the kernel's queue loses nothing", async () => {
    const reader = await Reader.of();
    const names = Array.from({ length: 1500 }, (_, i) => `${i}`.padEnd(200, "x"));
    for (const name of names) put(name);
    for (const name of names) await reader.until(name);
    expect(reader.overflows).toBe(0);
  });

  test("what a folder had when it came is told, though it came before anyone could watch it", async () => {
    const reader = await Reader.of();
    put("a/b/c/file");
    await reader.until("a/b/c/file");
    put("a/b/c/later");
    await reader.until("a/b/c/later");
  });

  test("a folder that is moved in is watched to its depth, one that is moved out no more", async () => {
    mkdirSync(join(root, "../away/deep"), { recursive: true });
    writeFileSync(join(root, "../away/deep/file"), "");
    const reader = await Reader.of();
    renameSync(join(root, "../away"), at("here"));
    await reader.until("here/deep/file");
    put("here/deep/new");
    await reader.until("here/deep/new");
    expect(kernelWatches()).toBe(3);
    renameSync(at("here"), join(root, "../away"));
    await reader.until("here", "removed");
    await until("it is let go of", () => kernelWatches() === 1);
    reader.told.clear();
    writeFileSync(join(root, "../away/deep/unseen"), "");
    put("seen");
    await reader.until("seen");
    expect([...reader.told.keys()]).toEqual(["seen"]);
  });

  test("below a renamed folder changes are told by its new name, also where another has taken the old one", async () => {
    put("old/sub/file");
    const reader = await Reader.of();
    renameSync(at("old"), at("new"));
    make("old/other");
    await reader.until("new/sub/file");
    await reader.until("old/other");
    reader.told.clear();
    put("new/sub/file", "x");
    put("old/other/file");
    await reader.until("new/sub/file");
    await reader.until("old/other/file");
    expect([...reader.told.keys()].sort()).toEqual(["new/sub/file", "old/other/file"]);
    expect(kernelWatches()).toBe(5);
  });

  test("a folder that is moved away and back in one go is still watched", async () => {
    make("a/b");
    const reader = await Reader.of();
    renameSync(at("a"), at("../out"));
    renameSync(at("../out"), at("a"));
    await reader.until("a");
    put("a/b/file");
    await reader.until("a/b/file");
    expect(kernelWatches()).toBe(3);
  });

  test("a folder that is removed and made again is watched again", async () => {
    const reader = await Reader.of();
    for (let round = 0; round < 20; round++) {
      put(`sub/deep/${round}`);
      await reader.until(`sub/deep/${round}`);
      rmSync(at("sub"), { recursive: true });
      // Every second time before it was looked at.
      if (round % 2 === 0) await reader.until("sub", "removed");
    }
    await reader.until("sub", "removed");
    await until("none of them is held", () => kernelWatches() === 1);
  });

  test("where events were lost that is told, and folders whose coming was lost are watched all the same", async () => {
    make("stays");
    const reader = await Reader.of();
    const most = Number(readFileSync("/proc/sys/fs/inotify/max_queued_events", "utf8"));
    // In one turn, so that nobody reads meanwhile.
    for (let i = 0; i <= most / 2; i++) {
      writeFileSync(at("stays/f"), "");
      rmSync(at("stays/f"));
    }
    make("lost/deep");
    rmSync(at("stays"), { recursive: true });
    await reader.untilOverflow();
    await until("what is there is watched", () => kernelWatches() === 3);
    put("lost/deep/file");
    await reader.until("lost/deep/file");
  });

  test("a tree whose folders come faster than they can be looked at one by one is watched whole", async () => {
    const reader = await Reader.of();
    const add = engine.folders.inotifyAdd.bind(engine.folders);
    const opening = spyOn(engine.folders, "open");
    let looks = 0;
    const adding = spyOn(engine.folders, "inotifyAdd").mockImplementation((...args) => {
      // The first one is of the first event, the others are of what was read by then, some 2,000. So slow a look takes a turn
      // of the loop: before they are done all others have come, no more than the kernel's queue holds.
      if (++looks > 1 && looks < 300) Bun.sleepSync(3);
      return add(...args);
    });
    try {
      fill(16_000);
      const isAll = () => opening.mock.calls.some(([path]) => path === `${root}/.`);
      await until("they are no more looked at one by one", isAll, 30_000);
    } finally {
      adding.mockRestore();
      opening.mockRestore();
    }
    await until("all are watched", () => kernelWatches() === 16_001);
    put("15999/file");
    await reader.until("15999/file");
  }, 60_000);

  test("names that are no UTF-8 stop nothing", async () => {
    Bun.spawnSync(["bash", "-c", "mkdir $'\\xff'"], { cwd: root });
    const reader = await Reader.of();
    Bun.spawnSync(["bash", "-c", "mkdir -p $'\\xfe/x'; : > $'\\xfe/x/f'; : > $'f\\xfe'"], { cwd: root });
    put("sub/file");
    await reader.until("sub/file");
  });

  test("a link to a folder is not entered, nor counted", async () => {
    Bun.spawnSync(["ln", "-s", "/usr", at("link")]);
    const reader = await Reader.of();
    Bun.spawnSync(["ln", "-s", "/usr", at("another")]);
    await reader.until("another");
    expect(kernelWatches()).toBe(1);
  });

  test("two watches of one folder both hear, and the end of one takes nothing from the other", async () => {
    make("sub/deep");
    const [outer, inner] = [await Reader.of("."), await Reader.of("sub")];
    const transfer = newUuidV7();
    const abort = new AbortController();
    const third = begin("sub", { transfer, signal: abort.signal });
    abort.abort(new CanceledError("taken back"));
    expect(await codeOf(third)).toBe("canceled");
    put("sub/deep/file");
    await Promise.all([outer.until("sub/deep/file"), inner.until("deep/file")]);
    expect(kernelWatches()).toBe(3);
  });

  test("without sub-folders only the folder itself is watched", async () => {
    make("sub");
    const reader = await Reader.of(".", false);
    put("sub/unseen");
    put("seen");
    await reader.until("seen");
    expect([[...reader.told.keys()], kernelWatches()]).toEqual([["seen"], 1]);
  });
});

describe("what is watched is gone", () => {
  const ended = async (reader: Reader): Promise<void> => {
    const read = async () => {
      for (;;) await reader.read();
    };
    expect(await codeOf(read())).toBe("not_found");
    await until("nothing is held", () => kernelWatches() === 0);
  };

  test("a folder that was removed is not waited for in vain", async () => {
    const reader = await Reader.of();
    rmSync(root, { recursive: true });
    await ended(reader);
    expect(await codeOf(begin())).toBe("ENOENT");
    mkdirSync(root);
    await Reader.of();
  });

  test("a folder that was moved and replaced is not taken for the one that is there", async () => {
    make("sub");
    const reader = await Reader.of();
    renameSync(root, join(root, "../moved"));
    mkdirSync(root);
    await ended(reader);
  });

  const above = () => ({ here: join(root, ".."), away: `${join(root, "..")}-away` });

  test("a folder above that was renamed does not make what came at the new place a removal", async () => {
    const reader = await Reader.of();
    const { here, away } = above();
    renameSync(here, away);
    writeFileSync(join(away, "root/still"), "x");
    put("fresh");
    await ended(reader);
    expect([...reader.told.keys()]).toEqual([]);
  });

  test("another at that path is not missed where nothing happens in what is watched", async () => {
    const reader = await Reader.of();
    const { here, away } = above();
    renameSync(here, away);
    put("fresh");
    expect(await codeOf(reader.read(0))).toBe("not_found");
    await until("nothing is held", () => kernelWatches() === 0);
  });

  test("nor where it is a file, of which only what lies at its path is told", async () => {
    put("file");
    const reader = await Reader.of("file");
    const { here, away } = above();
    renameSync(here, away);
    put("file", "another");
    expect(await codeOf(reader.read(0))).toBe("not_found");
  });

  test("a link that leads to another folder now is not taken for the one before", async () => {
    for (const name of ["one", "two"]) make(name);
    symlinkSync(at("one"), at("link"));
    const reader = await Reader.of("link");
    symlinkSync(at("two"), at("next"));
    renameSync(at("next"), at("link"));
    put("one/still");
    await ended(reader);
    expect([...reader.told.keys()]).toEqual([]);
  });

  test("a folder that came while one above was away for a moment is not missed for ever", async () => {
    const reader = await Reader.of();
    const { here, away } = above();
    renameSync(here, away);
    mkdirSync(join(away, "root/sub"));
    await until("it was looked at by its path, and the watch gave up", () => kernelWatches() === 0);
    renameSync(away, here);
    await ended(reader);
  });

  test("a file that an editor replaced is told of, and then begun anew; one that only changed goes on", async () => {
    put("file");
    const reader = await Reader.of("file");
    Bun.spawnSync(["chmod", "600", at("file")]);
    await reader.until("file");
    reader.told.clear();
    put("file", "x");
    await reader.until("file");
    reader.told.clear();
    put("draft", "y");
    renameSync(at("draft"), at("file"));
    await reader.until("file");
    await ended(reader);
  });
});

describe("a big tree", () => {
  test("is watched while other requests are answered", async () => {
    const many = 1_000;
    fill(many);
    put("file", "x");
    const order: string[] = [];
    const add = engine.folders.inotifyAdd.bind(engine.folders);
    const adding = spyOn(engine.folders, "inotifyAdd").mockImplementation((...args) => {
      // As on a machine so slow that the requests below take less than all of them.
      Bun.sleepSync(1);
      return add(...args);
    });
    // How many at most are added in one turn of the loop, in which nothing else is done.
    let [most, before, isOver] = [0, 0, false];
    const turn = (): void => {
      most = Math.max(most, adding.mock.calls.length - before);
      before = adding.mock.calls.length;
      if (!isOver) setImmediate(turn);
    };
    turn();
    try {
      const begun = begin().then(() => order.push("begun"));
      for (let i = 0; i < 5; i++) {
        await trees.hash("file", never);
        order.push("answered");
      }
      await begun;
    } finally {
      isOver = true;
      adding.mockRestore();
    }
    expect(order).toEqual([...Array(5).fill("answered"), "begun"]);
    expect(most).toBeLessThan(many / 2);
    expect(kernelWatches()).toBe(many + 1);
  }, 60_000);

  test("in which one folder has very many entries is read in pieces, and told whole", async () => {
    const reader = await Reader.of();
    mkdirSync(join(root, "../away"));
    // Of 32 bytes each.
    for (let i = 0; i < 4_000; i++) writeFileSync(join(root, "../away", String(i)), "");
    mkdirSync(join(root, "../away/sub"));
    const read = engine.folders.entries.bind(engine.folders);
    let [pieces, inTurn, most, isOver] = [0, 0, 0, false];
    const reading = spyOn(engine.folders, "entries").mockImplementation((...args) => {
      pieces++;
      most = Math.max(most, ++inTurn);
      // Longer than others are to wait.
      Bun.sleepSync(3);
      return read(...args);
    });
    const turn = (): void => {
      inTurn = 0;
      if (!isOver) setImmediate(turn);
    };
    turn();
    try {
      renameSync(join(root, "../away"), at("here"));
      // With the folder itself; a slow reader is told that there was more.
      while (reader.overflows === 0 && reader.told.size < 4_002) await reader.read();
      await until("the folder in it is watched", () => kernelWatches() === 3);
    } finally {
      isOver = true;
      reading.mockRestore();
    }
    expect(pieces).toBeGreaterThan(4);
    expect(most).toBeLessThan(3);
  }, 60_000);

  test("costs no reading of folders that have none in them", async () => {
    // Memory's file system counts them everywhere.
    const counted = mkdtempSync("/dev/shm/watch-test-");
    for (let i = 0; i < 50; i++) mkdirSync(`${counted}/${i % 2}/${i}`, { recursive: true });
    const reading = spyOn(engine.folders, "entries");
    try {
      await begin(counted);
      expect(kernelWatches()).toBe(53);
      // Of the root, and of the two.
      expect(reading.mock.calls.length).toBeLessThan(10);
    } finally {
      rmSync(counted, { recursive: true });
      reading.mockRestore();
    }
  });

  test("of a file system that counts no folders, as gVisor's, is watched whole", async () => {
    for (let i = 0; i < 20; i++) make(`${i % 2}/${i}/deep`);
    const open = engine.folders.open.bind(engine.folders);
    const opening = spyOn(engine.folders, "open").mockImplementation((path, follow, about) => {
      // Each folder has two links there, and is what was asked for.
      if (about[1] !== 0) return -61;
      const fd = open(path, follow, about);
      about[0] = 2;
      return fd;
    });
    try {
      await begin();
      expect(kernelWatches()).toBe(43);
    } finally {
      opening.mockRestore();
    }
  });

  test("whose beginning is taken back gives all back, and nothing of another watch", async () => {
    fill(3_000);
    mkdirSync(join(root, "../other"));
    const other = await Reader.of("../other");
    const abort = new AbortController();
    const beginning = begin(".", { signal: abort.signal });
    await until("some are watched", () => kernelWatches() > 100);
    abort.abort(new CanceledError("taken back"));
    expect(await codeOf(beginning)).toBe("canceled");
    await until("they are given back", () => kernelWatches() === 1);
    writeFileSync(join(root, "../other/file"), "");
    await other.until("file");
    expect(other.overflows).toBe(0);
  }, 60_000);

  test("begins once for all who ask by one name, and for the last of them", async () => {
    fill(3_000);
    const transfer = newUuidV7();
    const [first, second] = [new AbortController(), new AbortController()];
    const beginning = [first, second].map(({ signal }) => begin(".", { transfer, signal }));
    await until("some are watched", () => kernelWatches() > 100);
    first.abort(new CanceledError("taken back"));
    expect(await codeOf(beginning[0] as Promise<unknown>)).toBe("canceled");
    const answer = await beginning[1];
    expect(kernelWatches()).toBe(3_001);
    expect(await begin(".", { transfer })).toEqual(answer as never);
    expect(kernelWatches()).toBe(3_001);
    expect(await codeOf(begin("0", { transfer }))).toBe("invalid_request");
  }, 60_000);

  test("that nobody asks for ends, also where whoever began it was gone before the answer", async () => {
    trees = createTrees({ cwd: root, engine, watchIdleMs: 50 });
    fill(500);
    void begin();
    await until("it is watched", () => kernelWatches() === 501);
    await until("it has ended", () => kernelWatches() === 0);
  });

  test("is given back by a daemon that ends while it begins", async () => {
    fill(3_000);
    const beginning = begin();
    await until("some are watched", () => kernelWatches() > 100);
    trees.close();
    expect(await codeOf(beginning)).toBe("canceled");
    await until("they are given back", () => kernelWatches() === 0);
  }, 60_000);
});

describe("who asks beside another", () => {
  const ask = async (cursor: string, waitMs = 20_000) => await trees.changes({ path: ".", cursor, waitMs });

  test("is told of a change at once, also where the other had nothing in its time", async () => {
    const { cursor } = await begin();
    const [short, long] = [ask(cursor, 10), ask(cursor)];
    expect((await short).changes).toEqual([]);
    put("a");
    expect((await long).changes).toEqual([{ path: "a", kind: "changed" }]);
  });

  test("does not keep from a later change whoever was told of the one before", async () => {
    const { cursor } = await begin();
    const [first, second] = [ask(cursor, 500), ask(cursor)];
    put("a");
    const told = await second;
    const next = ask(told.cursor);
    expect(await first).toEqual(told);
    put("b");
    expect((await next).changes).toEqual([{ path: "b", kind: "changed" }]);
  });

  test("keeps the watch, though the other has had its answer long ago", async () => {
    trees = createTrees({ cwd: root, engine, watchIdleMs: 50 });
    const { cursor } = await begin();
    await Promise.all([ask(cursor, 10), ask(cursor, 200)]);
    expect((await ask(cursor, 0)).cursor).toBe(cursor);
  });

  test("is not told a later turn in place of the one that it asked for", async () => {
    const { cursor } = await begin();
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
      put("a");
      await until("the slow one is woken", () => isWoken);
      const told = await ask(cursor);
      expect(told.changes).toEqual([{ path: "a", kind: "changed" }]);
      put("b");
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
    await begin(".", { transfer, recursive: false });
    const another = begin(".", { transfer, recursive: true }).catch((error: unknown) => error);
    expect(await another).toMatchObject({ code: "invalid_request", field: "transfer" });
  });
});

describe("an end", () => {
  test("that is asked for comes at once, also for whoever waits for a change, and takes no other watch along", async () => {
    make("sub");
    const transfer = newUuidV7();
    const other = await Reader.of("sub");
    const { cursor } = await begin(".", { transfer });
    const waiting = trees.changes({ path: ".", cursor, waitMs: 20_000 });
    expect(await trees.endWatch(transfer)).toBe(true);
    expect((await waiting).changes).toEqual([]);
    expect(await codeOf(trees.changes({ path: ".", cursor, waitMs: 0 }))).toBe("not_found");
    expect(kernelWatches()).toBe(1);
    expect(await trees.endWatch(transfer)).toBe(false);
    put("sub/file");
    await other.until("file");
  });
});

describe("where there is an end", () => {
  /** In a user's own namespaces, `before` done by its root; what the fixture says. */
  const apart = async (before: string, ...args: string[]): Promise<unknown[]> => {
    const fixture = join(import.meta.dir, "watch.fixture.ts");
    const line = `R="$1"; ${before}; exec "$@"`;
    const child = Bun.spawn(
      [
        ...["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", line, "sh"],
        ...["env", "-u", "R", process.execPath, fixture, root, ...args],
      ],
      { stdout: "pipe", stderr: "inherit", env: { ...process.env, ROOT: root } },
    );
    const text = await new Response(child.stdout).text();
    expect(await child.exited).toBe(0);
    return text
      .trimEnd()
      .split("\n")
      .map((said) => JSON.parse(said));
  };

  test("the machine's limits are told by their names, not as a full disk", async () => {
    fill(10);
    expect(await apart("echo 11 > /proc/sys/user/max_inotify_watches")).toEqual([11]);
    const [watches] = await apart("echo 5 > /proc/sys/user/max_inotify_watches");
    expect(watches).toMatchObject({ code: "file_error", reason: "ENOSPC" });
    expect(watches).toHaveProperty("message", expect.stringContaining("max_user_watches"));
    const [instances] = await apart("echo 0 > /proc/sys/user/max_inotify_instances");
    expect(instances).toMatchObject({ code: "file_error", reason: "EMFILE" });
    expect(instances).toHaveProperty("message", expect.stringContaining("max_user_instances"));
  });

  test("a limit that is reached later ends the watch with that, and not by silence", async () => {
    make("sub");
    const said = await apart("echo 5 > /proc/sys/user/max_inotify_watches", 'mkdir -p "$ROOT/1/2/3/4/5/6"');
    expect(said.at(-1)).toMatchObject({ code: "file_error", reason: "ENOSPC" });
  });

  test("the daemon's own limit is told, and what was one too many is let go of", async () => {
    const inotify = new Inotify(engine, () => undefined);
    const place = (wd: number) => ({ wd, twin: undefined, event: () => undefined });
    const first = inotify.watch(root, 0);
    const places = Array.from({ length: 131_072 }, (_, i) => place(1_000_000 + i));
    for (const each of places) inotify.hold(each);
    expect(() => inotify.hold(place(first))).toThrow("at most 131072 folders");
    expect(kernelWatches()).toBe(0);
    inotify.let(places[0] as (typeof places)[0]);
    inotify.hold(place(inotify.watch(root, 0)));
    expect(kernelWatches()).toBe(1);
    inotify.close();
  });

  test("a folder that an overlay puts together from several is watched whole", async () => {
    for (const path of ["a/one/deep", "a/both/left", "b/both/right", "b/two", "mnt"]) make(path);
    const mount = 'mount -t overlay -o "lowerdir=$ROOT/a:$ROOT/b" none "$ROOT/mnt"';
    expect(await apart(mount)).toEqual([1 + 5 + 4 + 7]);
  });

  test("a mounted proc is left out, since it has no end", async () => {
    make("sub");
    make("a b/proc");
    expect(await apart('mount --rbind /proc "$ROOT/a b/proc"')).toEqual([3]);
  });

  test("a file system that is mounted over what is watched is not taken for it", async () => {
    const line = 'cd "$ROOT"; mount -t tmpfs none "$ROOT"; touch still';
    expect(await apart("true", line)).toEqual([1, expect.objectContaining({ code: "not_found" })]);
  });

  test("what lay below a file system that was unmounted is watched then", async () => {
    make("mnt");
    const line = 'umount "$ROOT/mnt"; sleep 0.1; mkdir "$ROOT/mnt/sub"; touch "$ROOT/mnt/sub/last"';
    expect(await apart('mount -t tmpfs none "$ROOT/mnt"; mkdir "$ROOT/mnt/over"', line)).toEqual(
      expect.arrayContaining([3, "overflow", "mnt/sub/last"]),
    );
  });
});
