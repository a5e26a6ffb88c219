// Looking into a sandbox's files without downloading them, through the SDK, against a real daemon.
import { expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { until } from "../../../broker/server/testing.ts";
import { type FileChange, FileError } from "../../../sdk/typescript/mod.ts";
import { liveBox } from "./mesh.ts";

/** Whether the sandbox's daemon watches any folder now, as the kernel tells it. */
const watching = ({ id, live }: Awaited<ReturnType<typeof liveBox>>) => {
  const daemon = live.provider.made.get(id)?.daemon.pid;
  return () => Bun.spawnSync(["sh", "-c", `cat /proc/${daemon}/fdinfo/*`]).stdout.includes("inotify wd:");
};

test("sha256, chmod, chown: of what is there, and a missing file is a FileError", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const content = Buffer.alloc(5_000_000, "sandmesh");
  await sandbox.files.write("f", content);
  expect(await sandbox.files.sha256("f")).toEqual({
    sha256: createHash("sha256").update(content).digest("hex"),
    size: content.length,
  });
  await sandbox.files.chmod("f", 0o751);
  await sandbox.files.chown("f", { gid: process.getgid?.() ?? 0 });
  expect((await sandbox.files.stat("f")).mode).toBe(0o751);
  const missing = await sandbox.files.sha256("nothing").catch((error: unknown) => error);
  expect(missing).toBeInstanceOf(FileError);
  expect(missing).toMatchObject({ reason: "ENOENT" });
});

test("glob gives more than one page holds, each path once; search finds text", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  await sandbox.exec(
    "mkdir -p many/a many/b; cd many; for i in $(seq 1100); do : > a/$i.py; done; echo 'x = 1' > b/x.py",
  );
  const paths = await sandbox.files.glob("**/*.py", { folder: "many" });
  expect([paths.length, new Set(paths).size, paths.at(-1)]).toEqual([1_101, 1_101, "b/x.py"]);
  expect(await sandbox.files.search("X =", "many", { ignoreCase: true, files: "**/*.py" })).toEqual({
    matches: [{ path: "b/x.py", line: 1, text: "x = 1" }],
    more: false,
  });
});

test("a watch tells what commands change, and ends with the loop", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  await sandbox.files.mkdir("watched/sub");
  const changes = sandbox.files.watch("watched")[Symbol.asyncIterator]();
  let told: IteratorResult<FileChange> | undefined;
  const first = changes.next().then((result) => {
    told = result;
  });
  // From when on it watches is not told, so the change is made until it is.
  while (told === undefined) await sandbox.files.write("watched/sub/file", "x");
  await first;
  expect(told?.value?.path).toStartWith("sub");
  await sandbox.exec("rm watched/sub/file");
  for (;;) {
    const { value } = await changes.next();
    if (value?.kind === "removed") {
      expect(value.path).toBe("sub/file");
      break;
    }
  }
  await changes.return?.();
});

test("a watched folder that was replaced is watched on, which an overflow tells; one that was removed ends the loop", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  await sandbox.files.mkdir("watched");
  const changes = sandbox.files.watch("watched")[Symbol.asyncIterator]();
  const next = async () => (await changes.next()).value?.path;
  let told: string | undefined;
  const first = next().then((path) => {
    told = path;
  });
  while (told === undefined) await sandbox.files.write("watched/file", "x");
  await first;
  await sandbox.exec("mv watched moved; mkdir watched");
  while ((await next()) !== "");
  await sandbox.files.write("watched/new", "x");
  while ((await next()) !== "new");
  await sandbox.exec("rm -r watched");
  const ended = (async () => {
    for (;;) await next();
  })();
  expect(await ended.catch((error: unknown) => error)).toMatchObject({
    code: "file_error",
    reason: "ENOENT",
  });
});

test("a watch that is taken back while it begins ends in the sandbox, too", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  await sandbox.exec("mkdir big && cd big && seq 5000 | xargs mkdir", { check: true });
  const watched = watching(sandbox);
  const abort = new AbortController();
  const first = sandbox.files.watch("big", { signal: abort.signal })[Symbol.asyncIterator]().next();
  await until("it watches some of it", watched);
  abort.abort();
  expect(await first.catch((error: unknown) => error)).toMatchObject({ code: "canceled" });
  await until("it watches none of it", () => !watched());
});

test("a watch whose loop is left, or taken back, ends in the sandbox, too", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const { files } = sandbox;
  await files.mkdir("watched");
  const watched = watching(sandbox);
  const abort = new AbortController();
  let changes = 0;
  const loop = async (signal?: AbortSignal) => {
    for await (const _change of files.watch("watched", signal === undefined ? {} : { signal })) {
      changes++;
      if (signal === undefined) break;
    }
  };
  const left = loop();
  while (changes === 0) await files.write("watched/file", "x");
  await left;
  await until("none is watched after the break", () => !watched());
  const taken = loop(abort.signal).catch((error: unknown) => error);
  while (changes === 1) await files.write("watched/file", "x");
  expect(watched()).toBe(true);
  abort.abort();
  expect(await taken).toMatchObject({ code: "canceled" });
  await until("none is watched after the abort", () => !watched());
});

test("a removal that is taken back ends in the sandbox, too", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const { files } = sandbox;
  await sandbox.exec("mkdir tree && cd tree && seq 30000 | xargs touch", { check: true });
  const left = async () => Number((await sandbox.exec("ls tree | wc -l", { check: true })).stdout.text);
  const abort = new AbortController();
  const removing = files.remove("tree", { recursive: true, signal: abort.signal }).catch((error) => error);
  await until("some are gone", async () => (await left()) < 30_000);
  abort.abort();
  expect(await removing).toMatchObject({ code: "canceled" });
  let before: number;
  do before = await left();
  while (before !== (await left()));
  expect(before).toBeGreaterThan(0);
}, 60_000);

test("what is taken back ends in the sandbox, too: its file is closed", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const { files, live } = sandbox;
  // 8 TiB almost without a block: read to its end it takes an hour. It begins as text, or search would leave it out.
  await sandbox.exec("yes | head -c 9000 > endless; truncate -s 8T endless", { check: true });
  // An archive is through with holes at once: more than is sent ahead of a reader, who stays at the first part.
  await sandbox.exec("mkdir full; head -c 16M /dev/zero > full/endless", { check: true });
  const daemon = live.provider.made.get(sandbox.id)?.daemon.pid;
  const isOpen = () => Bun.spawnSync(["ls", "-l", `/proc/${daemon}/fd`]).stdout.includes("/endless");
  const all = async (parts: AsyncIterable<unknown>) => {
    for await (const _part of parts) await Bun.sleep(0);
  };
  const first = async (parts: AsyncIterable<unknown>, signal: AbortSignal) => {
    for await (const _part of parts) await until("it is taken back", () => signal.aborted);
  };
  const works: Record<string, (signal: AbortSignal) => Promise<unknown>> = {
    sha256: (signal) => files.sha256("endless", { signal }),
    search: (signal) => files.search("x", "endless", { signal }),
    read: (signal) => all(files.readStream("endless", { signal })),
    pack: (signal) => first(files.pack("full", { signal }), signal),
  };
  for (const [name, work] of Object.entries(works)) {
    const abort = new AbortController();
    const working = work(abort.signal).catch((error: unknown) => error);
    await until(`${name} has opened it`, isOpen);
    abort.abort();
    expect(await working).toMatchObject({ code: "canceled" });
    await until(`${name} has closed it`, () => !isOpen(), 20_000);
  }
}, 120_000);
