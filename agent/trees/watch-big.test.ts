// Watches of big trees, and at the limits of the daemon and the machine. Against the real kernel.
import { describe, expect, spyOn, test } from "bun:test";
import { mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { CanceledError, newUuidV7 } from "../../broker/contract/index.ts";
import { until } from "../exec/testing.ts";
import { Inotify } from "./inotify.ts";
import { codeOf, kernelWatches, never, onTrees } from "./testing.ts";

const own = onTrees();

describe("a big tree", () => {
  test("is watched while other requests are answered", async () => {
    const many = 1_000;
    own.fill(many);
    own.put("file", "x");
    const order: string[] = [];
    const add = own.engine.folders.inotifyAdd.bind(own.engine.folders);
    const adding = spyOn(own.engine.folders, "inotifyAdd").mockImplementation((...args) => {
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
      const begun = own.begin().then(() => order.push("begun"));
      for (let i = 0; i < 5; i++) {
        await own.trees.hash("file", never);
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
    const reader = await own.reader();
    mkdirSync(join(own.root, "../away"));
    // Of 32 bytes each.
    for (let i = 0; i < 4_000; i++) writeFileSync(join(own.root, "../away", String(i)), "");
    mkdirSync(join(own.root, "../away/sub"));
    const read = own.engine.folders.entries.bind(own.engine.folders);
    let [pieces, inTurn, most, isOver] = [0, 0, 0, false];
    const reading = spyOn(own.engine.folders, "entries").mockImplementation((...args) => {
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
      renameSync(join(own.root, "../away"), own.at("here"));
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
    const reading = spyOn(own.engine.folders, "entries");
    try {
      await own.begin(counted);
      expect(kernelWatches()).toBe(53);
      // Of the root, and of the two.
      expect(reading.mock.calls.length).toBeLessThan(10);
    } finally {
      rmSync(counted, { recursive: true });
      reading.mockRestore();
    }
  });

  test("of a file system that counts no folders, as gVisor's, is watched whole", async () => {
    for (let i = 0; i < 20; i++) own.make(`${i % 2}/${i}/deep`);
    const open = own.engine.folders.open.bind(own.engine.folders);
    const opening = spyOn(own.engine.folders, "open").mockImplementation((path, follow, about) => {
      // Each folder has two links there, and is what was asked for.
      if (about[1] !== 0) return -61;
      const fd = open(path, follow, about);
      about[0] = 2;
      return fd;
    });
    try {
      await own.begin();
      expect(kernelWatches()).toBe(43);
    } finally {
      opening.mockRestore();
    }
  });

  test("whose beginning is taken back gives all back, and nothing of another watch", async () => {
    own.fill(3_000);
    mkdirSync(join(own.root, "../other"));
    const other = await own.reader("../other");
    const abort = new AbortController();
    const beginning = own.begin(".", { signal: abort.signal });
    await until("some are watched", () => kernelWatches() > 100);
    abort.abort(new CanceledError("taken back"));
    expect(await codeOf(beginning)).toBe("canceled");
    await until("they are given back", () => kernelWatches() === 1);
    writeFileSync(join(own.root, "../other/file"), "");
    await other.until("file");
    expect(other.overflows).toBe(0);
  }, 60_000);

  test("begins once for all who ask by one name, and for the last of them", async () => {
    own.fill(3_000);
    const transfer = newUuidV7();
    const [first, second] = [new AbortController(), new AbortController()];
    const beginning = [first, second].map(({ signal }) => own.begin(".", { transfer, signal }));
    await until("some are watched", () => kernelWatches() > 100);
    first.abort(new CanceledError("taken back"));
    expect(await codeOf(beginning[0] as Promise<unknown>)).toBe("canceled");
    const answer = await beginning[1];
    expect(kernelWatches()).toBe(3_001);
    expect(await own.begin(".", { transfer })).toEqual(answer as never);
    expect(kernelWatches()).toBe(3_001);
    expect(await codeOf(own.begin("0", { transfer }))).toBe("invalid_request");
  }, 60_000);

  test("that nobody asks for ends, also where whoever began it was gone before the answer", async () => {
    own.renew({ watchIdleMs: 50 });
    own.fill(500);
    void own.begin();
    await until("it is watched", () => kernelWatches() === 501);
    await until("it has ended", () => kernelWatches() === 0);
  });

  test("is given back by a daemon that ends while it begins", async () => {
    own.fill(3_000);
    const beginning = own.begin();
    await until("some are watched", () => kernelWatches() > 100);
    own.trees.close();
    expect(await codeOf(beginning)).toBe("canceled");
    await until("they are given back", () => kernelWatches() === 0);
  }, 60_000);
});

describe("where there is an end", () => {
  /** In a user's own namespaces, `before` done by its root; what the fixture says. */
  const apart = async (before: string, ...args: string[]): Promise<unknown[]> => {
    const fixture = join(import.meta.dir, "watch.fixture.ts");
    const line = `R="$1"; ${before}; exec "$@"`;
    const child = Bun.spawn(
      [
        ...["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec", line, "sh"],
        ...["env", "-u", "R", process.execPath, fixture, own.root, ...args],
      ],
      { stdout: "pipe", stderr: "inherit", env: { ...process.env, ROOT: own.root } },
    );
    const text = await new Response(child.stdout).text();
    expect(await child.exited).toBe(0);
    return text
      .trimEnd()
      .split("\n")
      .map((said) => JSON.parse(said));
  };

  test("the machine's limits are told by their names, not as a full disk", async () => {
    own.fill(10);
    expect(await apart("echo 11 > /proc/sys/user/max_inotify_watches")).toEqual([11]);
    const [watches] = await apart("echo 5 > /proc/sys/user/max_inotify_watches");
    expect(watches).toMatchObject({ code: "file_error", reason: "ENOSPC" });
    expect(watches).toHaveProperty("message", expect.stringContaining("max_user_watches"));
    const [instances] = await apart("echo 0 > /proc/sys/user/max_inotify_instances");
    expect(instances).toMatchObject({ code: "file_error", reason: "EMFILE" });
    expect(instances).toHaveProperty("message", expect.stringContaining("max_user_instances"));
  });

  test("a limit that is reached later ends the watch with that, and not by silence", async () => {
    own.make("sub");
    const said = await apart("echo 5 > /proc/sys/user/max_inotify_watches", 'mkdir -p "$ROOT/1/2/3/4/5/6"');
    expect(said.at(-1)).toMatchObject({ code: "file_error", reason: "ENOSPC" });
  });

  test("the daemon's own limit is told, and what was one too many is let go of", async () => {
    const inotify = new Inotify(own.engine, () => undefined);
    const place = (wd: number) => ({ wd, twin: undefined, event: () => undefined });
    const first = inotify.watch(own.root, 0);
    const places = Array.from({ length: 131_072 }, (_, i) => place(1_000_000 + i));
    for (const each of places) inotify.hold(each);
    expect(() => inotify.hold(place(first))).toThrow("at most 131072 folders");
    expect(kernelWatches()).toBe(0);
    inotify.let(places[0] as (typeof places)[0]);
    inotify.hold(place(inotify.watch(own.root, 0)));
    expect(kernelWatches()).toBe(1);
    inotify.close();
  });

  test("a folder that an overlay puts together from several is watched whole", async () => {
    for (const path of ["a/one/deep", "a/both/left", "b/both/right", "b/two", "mnt"]) own.make(path);
    const mount = 'mount -t overlay -o "lowerdir=$ROOT/a:$ROOT/b" none "$ROOT/mnt"';
    expect(await apart(mount)).toEqual([1 + 5 + 4 + 7]);
  });

  test("a mounted proc is left out, since it has no end", async () => {
    own.make("sub");
    own.make("a b/proc");
    expect(await apart('mount --rbind /proc "$ROOT/a b/proc"')).toEqual([3]);
  });

  test("a file system that is mounted over what is watched is not taken for it", async () => {
    const line = 'cd "$ROOT"; mount -t tmpfs none "$ROOT"; touch still';
    expect(await apart("true", line)).toEqual([1, expect.objectContaining({ code: "not_found" })]);
  });

  test("what lay below a file system that was unmounted is watched then", async () => {
    own.make("mnt");
    const line = 'umount "$ROOT/mnt"; sleep 0.1; mkdir "$ROOT/mnt/sub"; touch "$ROOT/mnt/sub/last"';
    expect(await apart('mount -t tmpfs none "$ROOT/mnt"; mkdir "$ROOT/mnt/over"', line)).toEqual(
      expect.arrayContaining([3, "overflow", "mnt/sub/last"]),
    );
  });
});
