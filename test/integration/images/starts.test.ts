// The daemon in kinds of root file systems, each started in three ways: as PID 1, under another one that reaps (as tini
// does), and beside an entrypoint of the image's own that reaps nothing.
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { chownSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildDaemon } from "../../../agent/build.ts";
import { Processes, readProcesses } from "../../../agent/exec/processes.ts";
import { until } from "../../../agent/exec/testing.ts";
import { daemonInRoot, type TestDaemon, type TestMesh, testMesh } from "../../../agent/testing.ts";
import { testServer } from "../../../broker/server/testing.ts";
import { addInit, makeBusyboxRoot, makeMuslRoot, makeStaticRoot } from "../../images/images.ts";

setDefaultTimeout(60_000);

interface Kind {
  what: string;
  make(root: string): Promise<unknown>;
  say: string;
  shell: boolean;
  user?: string;
  /** Shell, run outside before the start, with the root's path in $R. */
  before?: string;
  /** A folder that may be written to. */
  writable: string;
}

const KINDS: Kind[] = [
  { what: "nothing but busybox", make: makeBusyboxRoot, say: "/bin/echo", shell: true, writable: "/tmp" },
  { what: "musl, no shell", make: makeMuslRoot, say: "/say", shell: false, writable: "/etc" },
  { what: "one static program", make: makeStaticRoot, say: "/echo", shell: false, writable: "/" },
  {
    what: "a user other than root",
    make: async (root) => {
      await makeBusyboxRoot(root);
      chownSync(join(root, "home/agent"), 1000, 1000);
    },
    say: "/bin/echo",
    shell: true,
    user: "1000:1000",
    writable: "/home/agent",
  },
  {
    what: "read-only but for one folder, no /tmp, no /etc",
    make: async (root) => {
      await makeBusyboxRoot(root);
      for (const name of ["tmp", "etc"]) rmSync(join(root, name), { recursive: true });
      mkdirSync(join(root, "data"));
    },
    say: "/bin/echo",
    shell: true,
    before: 'mount -t tmpfs data "$R/data"; mount -o remount,bind,ro "$R"',
    writable: "/data",
  },
];

const STARTS = ["as PID 1", "under a PID 1 that reaps", "beside the image's own entrypoint"] as const;
type Start = (typeof STARTS)[number];
const FIRST: Record<Start, string> = {
  "as PID 1": "",
  "under a PID 1 that reaps": "/init",
  "beside the image's own entrypoint": "/entrypoint",
};

const text = (data: Uint8Array | undefined): string => Buffer.from(data ?? []).toString();

const below = (ancestor: number): number[] => new Processes(readProcesses()).tree("", ancestor, -1);

/** What the living descendants of a process are called. */
function programsBelow(ancestor: number): string[] {
  return below(ancestor).flatMap((pid) => {
    try {
      return [readFileSync(`/proc/${pid}/comm`, "utf8").trim()];
    } catch {
      return [];
    }
  });
}

// Mounts and chroot need root.
describe.if(process.getuid?.() === 0)("the daemon", () => {
  let folder: string;
  let roots: string;
  let mesh: TestMesh;
  beforeAll(async () => {
    folder = buildDaemon();
    roots = mkdtempSync(join(tmpdir(), "starts-test-"));
    mesh = await testMesh(await testServer());
  });
  afterAll(async () => {
    await mesh[Symbol.asyncDispose]();
    rmSync(roots, { recursive: true, force: true });
  });

  async function start(kind: Kind, how: Start, name: string): Promise<TestDaemon> {
    const root = join(roots, name);
    await kind.make(root);
    for (const sub of ["proc", "dev", "sandmesh"]) mkdirSync(join(root, sub), { recursive: true });
    await addInit(root);
    const more = { first: FIRST[how], ...(kind.user !== undefined && { user: kind.user }) };
    return mesh.start({
      argv: daemonInRoot(folder, root, kind.before, more),
      env: { PATH: "/usr/bin:/bin:/usr/sbin:/sbin" },
    });
  }

  /** Orphans are gone, also where the first process reaps none. */
  async function reaps(daemon: TestDaemon): Promise<void> {
    const line =
      "for i in 1 2 3 4 5 6 7 8 9 10; do (busybox setsid busybox sleep 0.05 &); done; busybox id -u; exit 7";
    const end = await daemon.exec({ shell: line });
    expect(end.outcome).toEqual({ type: "exited", code: 7 });
    await until("no zombie is left", async () => {
      const list = await daemon.exec({ shell: "busybox grep -l '^State:.Z' /proc/[0-9]*/status" });
      return text(list.stdout) === "";
    });
  }

  const cases = KINDS.flatMap((kind) => STARTS.map((how) => [kind.what, how, kind] as const));
  test.each(cases)("%s, %s", async (_, how, kind) => {
    const daemon = await start(kind, how, `${KINDS.indexOf(kind)}-${STARTS.indexOf(how)}`);
    expect(text((await daemon.exec({ argv: [kind.say, "a  b", "é"] })).stdout)).toBe("a  b é\n");
    const line = await daemon.exec({ shell: "echo $((6 * 7)); exit 3" });
    if (kind.shell) expect([line.outcome, text(line.stdout)]).toEqual([{ type: "exited", code: 3 }, "42\n"]);
    else expect(line.outcome).toMatchObject({ type: "not_started", reason: "no_shell" });
    if (kind.shell) await reaps(daemon);
    const path = join(kind.writable, "file");
    expect(await daemon.request("write", { path, data: Buffer.from("kept") })).toMatchObject({ done: true });
    const info = await daemon.request("info", {});
    expect(info).toMatchObject({ uid: Number(kind.user?.split(":")[0] ?? 0) });
    expect(info.pid === 1).toBe(how === "as PID 1");
    // Ends in order; an entrypoint of the image's own goes on.
    daemon.control("release", { version: 1, generation: 1, reason: "done" });
    if (how !== "beside the image's own entrypoint") expect(await daemon.exited).toBe(0);
    else {
      await until("the daemon is gone", () => !programsBelow(daemon.pid).includes("sandmesh-agent"));
      expect(programsBelow(daemon.pid)).toContain("entrypoint");
      // Whose user is another does not die with its parent.
      for (const pid of below(daemon.pid)) process.kill(pid, "SIGKILL");
    }
  });

  test("a signal that a PID 1 forwards ends it in order, and its commands with it", async () => {
    const [kind] = KINDS;
    if (kind === undefined) throw new Error("no kind");
    const daemon = await start(kind, "under a PID 1 that reaps", "signal");
    const running = daemon.exec({
      shell: "trap 'echo bye > /tmp/bye; exit' TERM; echo up; kill -TERM 1; sleep 60 & wait",
    });
    running.catch(() => {});
    expect(await daemon.exited).toBe(0);
    expect(await Bun.file(join(roots, "signal/tmp/bye")).text()).toBe("bye\n");
  });
});
