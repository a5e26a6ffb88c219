// The command line where what is named is a fifo, or the other end of its output does nothing: nothing is lost, and
// signals are heard.
import { describe, expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { open, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { onOneMesh } from "./one-mesh.ts";
import { eventually, PROGRAM, PROGRAM_WORDS, run } from "./program.ts";

const here = onOneMesh();

let fifos = 0;
function fifo(): string {
  const path = join(here.scratch, `fifo-${fifos++}`);
  Bun.spawnSync(["mkfifo", path]);
  return path;
}

function begin(...args: string[]) {
  const env = { ...process.env, SANDMESH_HOME: here.home };
  return Bun.spawn([...PROGRAM, ...args], { env, stdin: "ignore", stdout: "pipe", stderr: "pipe" });
}

/** Reads nothing yet. */
const reader = (path: string) => open(path, "r+");

/** A pipe holds 64 KiB; ours is full when the program has no more to write into. */
const isFull = (path: string): boolean => {
  const probe = Bun.spawnSync(
    ["dd", `of=${path}`, "if=/dev/zero", "bs=4096", "count=1", "oflag=nonblock", "conv=notrunc"],
    { stderr: "pipe" },
  );
  return probe.exitCode !== 0;
};

describe("cp to a fifo", () => {
  test("without a reader waits for it, and loses nothing", async () => {
    const id = await here.acquired();
    await here.sandmesh("exec", id, "--", "seq 500000 > /tmp/seq");
    const path = fifo();
    const copying = begin("cp", `${id}:/tmp/seq`, path);
    const sum = await run(["bash", "-c", `sleep 1; sha256sum < ${path}; seq 500000 | sha256sum`]);
    const [got, wanted] = sum.stdout.trim().split("\n");
    expect(got).toBe(wanted);
    expect(await copying.exited).toBe(0);
    await here.sandmesh("release", id);
  });

  test.each(["SIGTERM", "SIGINT"] as const)(
    "hears %s, with no reader and with one that reads nothing",
    async (signal) => {
      const id = await here.acquired();
      await here.sandmesh("exec", id, "--", "seq 500000 > /tmp/seq");
      const lonely = begin("cp", `${id}:/tmp/seq`, fifo());
      await eventually("it is connected", () => heeds(lonely.pid) && isConnected(lonely.pid));
      lonely.kill(signal);
      expect(await lonely.exited).toBe(130);
      const path = fifo();
      const lazy = await reader(path);
      const stalled = begin("cp", `${id}:/tmp/seq`, path);
      await eventually("the fifo is full", () => isFull(path));
      stalled.kill(signal);
      expect(await stalled.exited).toBe(130);
      expect(await new Response(stalled.stderr).text()).toBe("sandmesh: canceled\n");
      await lazy.close();
      await here.sandmesh("release", id);
    },
  );
});

describe("cp from a pipe", () => {
  test("puts its bytes into a file, and no link that leads nowhere in the sandbox", async () => {
    const id = await here.acquired();
    const own = join(here.scratch, "own-link");
    await symlink("/dev/stdin", own);
    await writeFile(join(here.scratch, "told"), "of a file");
    const told = join(here.scratch, "told");
    for (const [script, wanted] of [
      [`sandmesh cp <(echo hi) ${id}:/tmp/x`, "hi\n"],
      [`sandmesh cp -L <(echo led) ${id}:/tmp/x`, "led\n"],
      [`echo data | sandmesh cp /dev/stdin ${id}:/tmp/x`, "data\n"],
      [`echo own | sandmesh cp ${own} ${id}:/tmp/x`, "own\n"],
      [`echo 'its number' | sandmesh cp /proc/self/fd/0 ${id}:/tmp/x`, "its number\n"],
      [`sandmesh cp /dev/stdin ${id}:/tmp/x < ${told}`, "of a file"],
      [`sandmesh cp /dev/stdin ${id}:/tmp/x <<< 'a here-document'`, "a here-document\n"],
      [`sandmesh cp /dev/stdin ${id}:/tmp/x < /dev/null`, ""],
    ] as const) {
      await here.sandmesh("exec", id, "--", "rm -f /tmp/x");
      const { code, stderr } = await here.line(script);
      const got = await here.sandmesh("exec", id, "--", "stat -c %F /tmp/x; cat /tmp/x");
      const kind = wanted === "" ? "regular empty file" : "regular file";
      expect([script, code, stderr, got.stdout]).toEqual([script, 0, "", `${kind}\n${wanted}`]);
    }
    await here.line(`sandmesh cp <(seq 500000) ${id}:/tmp/seq`);
    const sum = "stat -c %a /tmp/seq; sha256sum < /tmp/seq; seq 500000 | sha256sum";
    const [mode, got, all] = (await here.sandmesh("exec", id, "--", sum)).stdout.trim().split("\n");
    expect([mode, got]).toEqual(["644", all]);
    await here.sandmesh("release", id);
  });

  test("keeps a link that leads nowhere a link, and tells a descriptor that is closed", async () => {
    const id = await here.acquired();
    const dangling = join(here.scratch, "dangling");
    await symlink("nowhere", dangling);
    expect((await here.sandmesh("cp", dangling, `${id}:/tmp/dangling`)).code).toBe(0);
    expect((await here.sandmesh("exec", id, "--", "readlink /tmp/dangling")).stdout).toBe("nowhere\n");
    const closed = await here.line(`sandmesh cp /dev/fd/77 ${id}:/tmp/closed`);
    expect([closed.code, closed.stderr]).toEqual([
      1,
      expect.stringContaining("/dev/fd/77, on this machine: ENOENT"),
    ]);
    await here.sandmesh("release", id);
  });

  test("with a name waits for its writer, and loses nothing", async () => {
    const id = await here.acquired();
    const path = fifo();
    const copying = begin("cp", path, `${id}:/tmp/seq`);
    await eventually("it reads", () => isOpened(copying.pid, path));
    await run(["bash", "-c", `(seq 250000; sleep 1; seq 250001 500000) > ${path}`]);
    expect([await copying.exited, await new Response(copying.stderr).text()]).toEqual([0, ""]);
    const sum = await here.sandmesh("exec", id, "--", "sha256sum < /tmp/seq; seq 500000 | sha256sum");
    const [got, wanted] = sum.stdout.trim().split("\n");
    expect(got).toBe(wanted);
    await here.sandmesh("release", id);
  });

  test.each(["SIGTERM", "SIGINT"] as const)(
    "hears %s, with no writer and with one that writes nothing",
    async (signal) => {
      const id = await here.acquired();
      for (const lazy of [undefined, "r+"] as const) {
        const path = fifo();
        const writer = lazy && (await open(path, lazy));
        const copying = begin("cp", path, `${id}:/tmp/x`);
        await eventually("it reads", () => isOpened(copying.pid, path));
        copying.kill(signal);
        expect(await copying.exited).toBe(130);
        expect(await new Response(copying.stderr).text()).toBe("sandmesh: canceled\n");
        await writer?.close();
      }
      expect((await here.sandmesh("exec", id, "--", "test ! -e /tmp/x")).code).toBe(0);
      await here.sandmesh("release", id);
    },
  );
});

const isOpened = (pid: number, path: string): boolean =>
  Bun.spawnSync(["ls", "-l", `/proc/${pid}/fd`])
    .stdout.toString()
    .includes(`${path}\n`);

/** Its own descriptors for output are two; the next is the server's. */
const isConnected = (pid: number): boolean =>
  Bun.spawnSync(["ls", "-l", `/proc/${pid}/fd`])
    .stdout.toString()
    .split("socket:").length > 3;

/** Whether it handles SIGTERM: by then it is at work. */
const heeds = (pid: number): boolean => {
  if (!existsSync(`/proc/${pid}/status`)) return false;
  const caught = /^SigCgt:\s*([0-9a-f]+)/m.exec(readFileSync(`/proc/${pid}/status`, "latin1"))?.[1];
  return (BigInt(`0x${caught ?? 0}`) & 0x4000n) !== 0n;
};

test("an outcome that goes to a fifo waits for its reader, and hears signals", async () => {
  const path = fifo();
  const ran = begin("run", "--outcome", path, "host", "--", "sh", "-c", "exit 3");
  expect(JSON.parse((await run(["cat", path])).stdout)).toEqual({ type: "exited", code: 3 });
  expect(await ran.exited).toBe(3);
  const lonely = begin("run", "--outcome", fifo(), "host", "--", "echo", "x");
  for await (const part of lonely.stdout) if (Buffer.from(part).includes("x")) break;
  lonely.kill("SIGTERM");
  expect(await lonely.exited).toBe(130);
  expect((await here.sandmesh("ps", "--ids")).stdout.trim()).toBe("");
});

test("a reader of our output that reads nothing keeps no signal from being heard, and the command ends", async () => {
  const id = await here.acquired();
  const path = fifo();
  const lazy = await reader(path);
  const stalled = Bun.spawn(["bash", "-c", `exec ${PROGRAM_WORDS} exec ${id} -- yes > ${path}`], {
    env: { ...process.env, SANDMESH_HOME: here.home },
    stderr: "pipe",
  });
  await eventually("the pipe is full", () => isFull(path));
  stalled.kill("SIGTERM");
  expect(await stalled.exited).toBe(130);
  await lazy.close();
  await eventually(
    "the command ended",
    async () => !(await here.sandmesh("logs", "-l", id)).stdout.includes("running"),
  );
  await here.sandmesh("release", id);
});

describe("a credential", () => {
  test("that comes by a pipe is good for every command", async () => {
    for (const words of ["ps", "context pool", "run host -- true"]) {
      const creds = `<(cat ${here.credentials})`;
      const ran = await here.line(`XDG_CONFIG_HOME=${here.scratch} sandmesh --creds ${creds} ${words}`);
      expect([words, ran.code, ran.stderr.includes("sandmesh:")]).toEqual([words, 0, false]);
    }
  });

  test("without a writer hears signals, and one without end is wrong usage that names it", async () => {
    const lonely = begin("--creds", fifo(), "ps");
    await eventually("it has begun to wait", () => heeds(lonely.pid));
    lonely.kill("SIGTERM");
    expect(await lonely.exited).toBe(130);
    const endless = await here.sandmesh("--creds", "/dev/zero", "ps");
    expect([endless.code, endless.stderr]).toEqual([
      2,
      "sandmesh: invalid_request: credentials: /dev/zero is larger than 64 KiB\n",
    ]);
  });
});
