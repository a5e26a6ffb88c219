// The rows of the table of daemons in test/bench/README.md that are no times: what is kept, blocked, left behind and told,
// each asked of the daemon as a program, over the wire, in the words in which the others were asked.
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { testServer } from "../broker/server/testing.ts";
import { makeBusyboxRoot } from "../test/images/images.ts";
import { buildDaemon } from "./build.ts";
import { alive, until } from "./exec/testing.ts";
import { daemonInRoot, type TestDaemon, type TestMesh, testMesh } from "./testing.ts";

setDefaultTimeout(60_000);
const text = (data: Uint8Array | undefined): string => Buffer.from(data ?? []).toString();

let folder: string;
let mesh: TestMesh;
let daemon: TestDaemon;
beforeAll(async () => {
  folder = buildDaemon();
  mesh = await testMesh(await testServer());
  daemon = await mesh.start({ argv: [join(folder, "sandmesh-agent")] });
  await daemon.request("session_open", { session: "s" });
});
afterAll(() => mesh[Symbol.asyncDispose]());

/** Each way to run a line. */
const WAYS: [way: string, request: (line: string) => Record<string, unknown>][] = [
  ["argv", (line) => ({ argv: ["bash", "-c", line] })],
  ["shell line", (line) => ({ shell: line })],
  ["session", (line) => ({ session: "s", shell: line })],
];

describe.each(WAYS)("%s", (way, request) => {
  test("bytes ff 00 0d 0a are kept", async () => {
    const end = await daemon.exec(request("printf '\\377\\000\\r\\n'"));
    expect([...(end.stdout ?? [])]).toEqual([0xff, 0, 0x0d, 0x0a]);
  });

  test("`sleep 61 & echo hi` blocks nobody", async () => {
    // Its time limit would end it, and be told, if the answer waited for the child.
    const end = await daemon.exec({ ...request("sleep 61 & echo hi; echo $! >&2"), timeout_ms: 20_000 });
    const child = Number(text(end.stderr));
    try {
      expect([end.outcome, text(end.stdout)]).toEqual([{ type: "exited", code: 0 }, "hi\n"]);
      expect(await alive(child)).toBe(true);
    } finally {
      process.kill(child, "SIGKILL");
    }
  });

  test("no grandchild is left after a time-out", async () => {
    const line = "sh -c 'sleep 62 & echo $!; setsid sleep 62 & echo $!; wait'; echo never";
    const end = await daemon.exec({ ...request(line), timeout_ms: 500, grace_ms: 200 });
    const children = text(end.stdout).trim().split("\n").map(Number);
    expect([end.outcome.type, children.length]).toEqual(["timed_out", 2]);
    for (const child of children) await until("it is gone", async () => !(await alive(child)));
  });

  test("SIGKILL is told from exit 137", async () => {
    const killed = way === "session" ? "sh -c 'kill -9 $$'" : "kill -9 $$";
    const end = await daemon.exec(request(killed));
    // What a session's shell tells of a program that it ran is a status, as `$?` is.
    if (way === "session") expect(end.outcome).toEqual({ type: "exited", code: 137 });
    else expect(end.outcome).toMatchObject({ type: "signaled", signal: "SIGKILL" });
    const exited = await daemon.exec(request(way === "session" ? "(exit 137)" : "exit 137"));
    expect(exited.outcome).toEqual({ type: "exited", code: 137 });
    if (way !== "session") return;
    // Of its own end it is the truth.
    await daemon.request("session_open", { session: "own" });
    expect((await daemon.exec({ session: "own", shell: "kill -9 $$" })).outcome).toMatchObject({
      type: "signaled",
      signal: "SIGKILL",
    });
    await daemon.request("session_open", { session: "own" });
    expect((await daemon.exec({ session: "own", shell: "exit 137" })).outcome).toEqual({
      type: "exited",
      code: 137,
    });
  });
});

test("functions, aliases and jobs are kept in a session", async () => {
  const line = async (shell: string): Promise<string> =>
    text((await daemon.exec({ session: "s", shell })).stdout);
  const job = Number(await line("greet() { echo hello $1; }; alias shout='echo LOUD'; sleep 63 & echo $!"));
  try {
    expect(await line("greet you; shout")).toBe("hello you\nLOUD\n");
    expect(await line("jobs -p")).toContain(`${job}\n`);
    expect(await line(`kill -9 ${job}; wait ${job}; echo $?`)).toBe("137\n");
  } finally {
    if (await alive(job)) process.kill(job, "SIGKILL");
  }
});

// Mounts and chroot need root.
test.if(process.getuid?.() === 0)("10 orphans as PID 1 leave 0 zombies", async () => {
  const root = mkdtempSync(join(tmpdir(), "table-test-"));
  try {
    await makeBusyboxRoot(root);
    for (const sub of ["proc", "dev", "sandmesh"]) mkdirSync(join(root, sub));
    const inside = await mesh.start({
      argv: daemonInRoot(folder, root),
      env: { PATH: "/usr/sbin:/usr/bin:/bin" },
    });
    // Each ends when PID 1 has become its parent.
    const orphan =
      "until read -r _ _ _ parent _ < /proc/$$/stat; [ $parent = 1 ]; do sleep 0.01; done; echo > /tmp/$$";
    await inside.exec({ shell: `for i in 1 2 3 4 5 6 7 8 9 10; do (sh -c '${orphan}' &); done` });
    const count = async (line: string): Promise<number> =>
      Number(text((await inside.exec({ shell: line })).stdout));
    await until("all were orphans", async () => (await count("ls /tmp | wc -l")) === 10);
    await until(
      "no zombie is left",
      async () => (await count("cat /proc/[0-9]*/stat | grep -c ') Z '")) === 0,
    );
    inside.control("release", { version: 1, generation: 1, reason: "done" });
    expect(await inside.exited).toBe(0);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
});
