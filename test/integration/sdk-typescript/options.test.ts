// What a caller may wish of a command or a file reaches the sandbox.
import { expect, test } from "bun:test";
import { liveBox } from "./mesh.ts";

test("each option of a command does what it says", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const said = async (line: string, options: Parameters<typeof sandbox.exec>[1]): Promise<string> =>
    (await sandbox.exec(line, options)).stdout.text;
  expect(await said("umask", { umask: 0o27 })).toBe("0027\n");
  expect(await said("nice", { nice: 7 })).toBe("7\n");
  expect(await said("ulimit -Sn; ulimit -Hn; ulimit -t", { rlimits: { nofile: 77, cpu: 99 } })).toBe(
    "77\n77\n99\n",
  );
  expect(await said("echo [$HOME] [$ONLY]", { env: { ONLY: "1" }, envReplace: true })).toBe("[] [1]\n");
  expect(await said("echo [$HOME]", { env: { HOME: null } })).toBe("[]\n");
  expect(await said("(sleep 0.2; echo late) & echo early", { wait: "all" })).toBe("early\nlate\n");
  const grace = await sandbox.exec("trap 'echo bye; exit' TERM; echo up; sleep 60 & wait", {
    timeout: 500,
    grace: "30s",
  });
  expect([grace.stdout.text, grace.outcome]).toMatchObject(["up\nbye\n", { signal: "SIGTERM" }]);
  const harder = "trap '' TERM; echo up; while :; do sleep 0.05; done";
  expect((await sandbox.exec(harder, { timeout: 500, grace: 0 })).outcome).toMatchObject({
    signal: "SIGKILL",
  });
  // Nobody else can be become without root.
  const who = process.getuid?.() === 0 ? "65534:65534" : `${process.getuid?.()}:${process.getgid?.()}`;
  expect(await said("echo $(id -u):$(id -g)", { user: who, cwd: "/" })).toBe(`${who}\n`);
});

test("each option of a file's does what it says", async () => {
  const sandbox = await liveBox();
  await using _ = sandbox.live;
  const { files } = sandbox;
  const reasonOf = (work: Promise<unknown>): Promise<string> =>
    work.then(
      () => "done",
      (error: { reason: string }) => error.reason,
    );
  expect(await reasonOf(files.write("none/f", "x", { parents: false }))).toBe("ENOENT");
  expect(await reasonOf(files.mkdir("none/d", { parents: false }))).toBe("ENOENT");
  await files.mkdir("d", { mode: 0o750 });
  expect((await files.stat("d")).mode).toBe(0o750);
  const root = process.getuid?.() === 0;
  const [uid, gid] = root ? [1234, 5678] : [process.getuid?.() ?? 0, process.getgid?.() ?? 0];
  await files.write("d/owned", "x", { uid, gid, fsync: true });
  expect(await files.stat("d/owned")).toMatchObject({ uid, gid });
  await sandbox.exec("ln -s owned d/link; echo 'a text' | tee d/.hidden d/shown d/too > d/three");
  expect((await files.stat("d/link")).type).toBe("file");
  expect((await files.stat("d/link", { follow: false })).type).toBe("symlink");
  if (root) {
    await files.chown("d/link", { uid: 4321, follow: false });
    expect((await files.stat("d/link", { follow: false })).uid).toBe(4321);
    expect((await files.stat("d/link")).uid).toBe(1234);
  }
  expect(await files.glob("*", { folder: "d" })).toEqual(["link", "owned", "shown", "three", "too"]);
  expect(await files.glob("*d*", { folder: "d", hidden: true })).toEqual([".hidden", "owned"]);
  const found = async (options: Parameters<typeof files.search>[2]) => {
    const { matches, more } = await files.search("text", "d", options);
    return [matches.map(({ path }) => path).sort(), more];
  };
  expect(await found({})).toEqual([["shown", "three", "too"], false]);
  expect(await found({ hidden: true, files: ".*" })).toEqual([[".hidden"], false]);
  expect(await found({ limit: 2 })).toEqual([expect.any(Array), true]);
  expect((await files.search("text", "d", { limit: 2 })).matches.length).toBe(2);
});
