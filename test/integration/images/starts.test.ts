// The daemon in kinds of root file systems, each started in three ways: as PID 1, under another one that reaps (as tini
// does), and beside an entrypoint of the image's own that reaps nothing.
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { chownSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildDaemon } from "../../../agent/build.ts";
import { Processes, readProcesses } from "../../../agent/exec/processes.ts";
import { until } from "../../../agent/exec/testing.ts";
import { DEFAULT_PATH } from "../../../agent/process/environment.ts";
import { daemonInRoot, type TestDaemon, type TestMesh, testMesh } from "../../../agent/testing.ts";
import { testServer } from "../../../broker/server/testing.ts";
import { Cgroups } from "../../../pool/provider/local/cgroups.ts";
import { addInit, HOSTILE_ENV, makeBusyboxRoot, makeStaticRoot } from "../../images/images.ts";
import { lackOfMusl, makeMuslProgramRoot, makeMuslRoot } from "../../images/musl.ts";

setDefaultTimeout(60_000);

interface Kind {
  what: string;
  make(root: string): Promise<unknown>;
  say: string;
  shell: boolean;
  user?: string;
  /** Shell, run outside at the very first, which puts another root in the place of $R. */
  ground?: string;
  /** Shell, run outside before the start, with the root's path in $R. */
  before?: string;
  /** Words in front of the launcher, behind another first process. */
  through?: string;
  /** A folder that may be written to. */
  writable: string;
  /** Why it cannot be made on this machine. */
  lack?: string | undefined;
  /** What else is so in it. */
  also?(daemon: TestDaemon): Promise<void>;
}

const without =
  (...names: string[]) =>
  async (root: string): Promise<void> => {
    await makeBusyboxRoot(root);
    for (const name of names) rmSync(join(root, name), { recursive: true });
  };
const BUSYBOX = { make: makeBusyboxRoot, say: "/bin/echo", shell: true } as const;

/** This machine's root below what was made at $R, in layers of its own. */
const HOST = `L="$R.layers"; mkdir -p "$L"; mount -t tmpfs layers "$L"; mkdir "$L/up" "$L/work"; cp -a "$R" "$L/own"
  mount -t overlay -o "lowerdir=$L/own:/,upperdir=$L/up,workdir=$L/work" root "$R"`;

/** On a disk of its own, which is filled when all that the start needs is there. */
const SMALL = `D="$R.disk"; mkdir -p "$D"; mount -t tmpfs -o size=24m disk "$D"; cp -a "$R/." "$D"; mount --bind "$D" "$R"`;

const hostileWords = Object.entries(HOSTILE_ENV).map(([name, value]) => `${name}=${value}`);

const MEMORY_BYTES = 64 * 1024 * 1024;
let cgroups: Cgroups;
const groups: string[] = [];
/** Where nothing can be limited, nothing is. */
const limited = (): boolean => cgroups.enforced.has("memory");
/** Shell that puts its process into a group of its own, of that much memory. */
function limit(): string {
  if (!limited()) return "";
  const name = `memory-${groups.length}`;
  groups.push(name);
  const { tasks, folder } = cgroups.make(name, { image: "host", memory_bytes: MEMORY_BYTES });
  const files = [...tasks, ...(folder === null ? [] : [`${folder}/cgroup.procs`])];
  return files.map((file) => `echo 0 > '${file}'`).join("; ");
}

const KINDS: Kind[] = [
  {
    what: "this machine's own root (glibc, bash)",
    make: async (root) => mkdirSync(root, { recursive: true }),
    say: "/bin/echo",
    shell: true,
    ground: HOST,
    writable: "/var/tmp",
    async also(daemon) {
      expect(await daemon.request("info", {})).toMatchObject({
        shells: expect.arrayContaining([expect.stringMatching(/\/bash$/)]),
      });
    },
  },
  { ...BUSYBOX, what: "nothing but busybox", writable: "/tmp" },
  {
    what: "musl, shell and programs linked to it",
    make: makeMuslRoot,
    say: "/say",
    shell: true,
    writable: "/tmp",
    lack: lackOfMusl(),
    async also(daemon) {
      expect(await daemon.request("info", {})).toMatchObject({
        shells: ["/bin/sh", "/bin/ash", "/bin/busybox sh"],
      });
      const maps = text((await daemon.exec({ shell: "cat /proc/$$/maps" })).stdout);
      expect(maps).toContain("/lib/ld-musl-");
      expect(maps).not.toContain("/sandmesh/");
      if (process.arch !== "x64") return;
      for (let i = 0; i < 2; i++) await daemon.exec({ shell: ":" });
      await until("a shell stands ready", async () => {
        const list = await daemon.exec({ argv: ["/bin/sh", "-c", "cat /proc/[0-9]*/comm"] });
        return text(list.stdout).includes("sandmesh-spare\n");
      });
      expect(text((await daemon.exec({ shell: "echo $((6 * 7)) $0" })).stdout)).toBe("42 /bin/sh\n");
    },
  },
  { what: "musl, no shell", make: makeMuslProgramRoot, say: "/say", shell: false, writable: "/etc" },
  { what: "one static program", make: makeStaticRoot, say: "/echo", shell: false, writable: "/" },
  {
    ...BUSYBOX,
    what: "a user other than root",
    make: async (root) => {
      await makeBusyboxRoot(root);
      chownSync(join(root, "home/agent"), 1000, 1000);
    },
    user: "1000:1000",
    writable: "/home/agent",
    async also(daemon) {
      const id = { argv: ["/bin/id", "-u"] };
      for (const user of ["agent", "1000:1000"])
        expect(text((await daemon.exec({ ...id, user })).stdout)).toBe("1000\n");
      const reason = "permission";
      expect((await daemon.exec({ ...id, user: "root" })).outcome).toMatchObject({ reason });
    },
  },
  {
    ...BUSYBOX,
    what: "read-only but for one folder",
    make: async (root) => {
      await makeBusyboxRoot(root);
      mkdirSync(join(root, "data"));
    },
    before: 'mount -t tmpfs data "$R/data"; mount -o remount,bind,ro "$R"',
    writable: "/data",
    async also(daemon) {
      expect(await daemon.request("write", { path: "/tmp/x", data: Buffer.from("x") })).toMatchObject({
        error: { code: "file_error", reason: "EROFS" },
      });
    },
  },
  { ...BUSYBOX, what: "no /tmp", make: without("tmp"), writable: "/root" },
  { ...BUSYBOX, what: "no /etc/passwd, no /etc", make: without("etc"), writable: "/tmp" },
  {
    ...BUSYBOX,
    what: "an environment against its programs, and no PATH",
    through: `/bin/busybox env -u PATH ${hostileWords.join(" ")}`,
    writable: "/tmp",
    async also(daemon) {
      const lines = text((await daemon.exec({ argv: ["/bin/env"] })).stdout).split("\n");
      expect(lines).toEqual(expect.arrayContaining(hostileWords));
      expect(lines.filter((line) => line.startsWith("PATH="))).toEqual([`PATH=${DEFAULT_PATH}`]);
    },
  },
  {
    ...BUSYBOX,
    what: "64 MiB of memory",
    get before() {
      return limit();
    },
    writable: "/tmp",
    async also(daemon) {
      const hog = { argv: ["/bin/dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1"] };
      if (limited()) expect((await daemon.exec(hog)).outcome).toMatchObject({ signal: "SIGKILL" });
    },
  },
  {
    ...BUSYBOX,
    what: "a full disk",
    ground: SMALL,
    before: 'dd if=/dev/zero of="$R/full" bs=64k 2>/dev/null || true',
    writable: "/tmp",
    async also(daemon) {
      const echoed = Buffer.alloc(200_000, "full ");
      const end = await daemon.exec({ argv: ["/bin/cat"], stdin: echoed });
      expect(Buffer.compare(Buffer.from(end.stdout ?? []), echoed)).toBe(0);
      expect(await daemon.request("write", { path: "/tmp/new", data: Buffer.alloc(100_000) })).toMatchObject({
        error: { code: "file_error", reason: "ENOSPC" },
      });
      expect(await daemon.request("remove", { path: "/full" })).toEqual({ done: true });
    },
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
    await addInit(roots);
    cgroups = new Cgroups(`starts-test-${process.pid}`);
    mesh = await testMesh(await testServer());
  });
  afterAll(async () => {
    await mesh[Symbol.asyncDispose]();
    expect(groups.flatMap((name) => cgroups.remove(name))).toEqual([]);
    cgroups.close();
    rmSync(roots, { recursive: true, force: true });
  });

  /** Once for all that are started in it. */
  async function makeRoot(kind: Kind, name: string): Promise<string> {
    const root = join(roots, name);
    await kind.make(root);
    for (const sub of ["proc", "dev", "sandmesh"]) mkdirSync(join(root, sub), { recursive: true });
    for (const first of ["init", "entrypoint"]) copyFileSync(join(roots, first), join(root, first));
    return root;
  }

  function start(kind: Kind, how: Start, root: string): Promise<TestDaemon> {
    const { user = "0:0", ground = "", before = "", through = "" } = kind;
    return mesh.start({
      argv: daemonInRoot(folder, root, before, { first: `${FIRST[how]} ${through}`, user, ground }),
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

  async function commandsRun(daemon: TestDaemon, { say, shell }: Kind): Promise<void> {
    expect(text((await daemon.exec({ argv: [say, "a  b", "é"] })).stdout)).toBe("a  b é\n");
    const line = await daemon.exec({ shell: "echo $((6 * 7)); exit 3" });
    if (!shell) {
      expect(line.outcome).toMatchObject({ type: "not_started", reason: "no_shell" });
      return;
    }
    expect([line.outcome, text(line.stdout)]).toEqual([{ type: "exited", code: 3 }, "42\n"]);
    expect(await daemon.request("session_open", { session: "s" })).toMatchObject({ busy: false });
    await daemon.exec({ session: "s", shell: "A=$(cat <<E\nkept\nE\n)" });
    expect(text((await daemon.exec({ session: "s", shell: "echo $A" })).stdout)).toBe("kept\n");
    await reaps(daemon);
  }

  /** In order; an entrypoint of the image's own goes on. */
  async function ends(daemon: TestDaemon, how: Start): Promise<void> {
    daemon.control("release", { version: 1, generation: 1, reason: "done" });
    if (how !== "beside the image's own entrypoint") return void expect(await daemon.exited).toBe(0);
    await until("the daemon is gone", () => !programsBelow(daemon.pid).includes("sandmesh-agent"));
    expect(programsBelow(daemon.pid)).toContain("entrypoint");
    // Whose user is another does not die with its parent.
    for (const pid of below(daemon.pid)) process.kill(pid, "SIGKILL");
    await daemon.exited;
  }

  async function works(kind: Kind, how: Start, root: string): Promise<void> {
    const daemon = await start(kind, how, root);
    await commandsRun(daemon, kind);
    await kind.also?.(daemon);
    const path = join(kind.writable, `file-${STARTS.indexOf(how)}`);
    expect(await daemon.request("write", { path, data: Buffer.from("kept") })).toMatchObject({ done: true });
    const info = await daemon.request("info", {});
    expect(info).toMatchObject({ uid: Number(kind.user?.split(":")[0] ?? 0) });
    expect(info.pid === 1).toBe(how === "as PID 1");
    await ends(daemon, how);
  }

  // Each kind in each of the ways, which have all a meaning everywhere: side by side, in one root.
  const can = KINDS.filter(({ lack }) => lack === undefined);
  test.each(can.map((kind, i) => [kind.what, kind, i] as const))("%s", async (_, kind, i) => {
    const root = await makeRoot(kind, String(i));
    const all = STARTS.map((how) =>
      works(kind, how, root).then(
        () => [how, "works"],
        (error: unknown) => [how, error],
      ),
    );
    expect(await Promise.all(all)).toEqual(STARTS.map((how) => [how, "works"]));
  });

  for (const { what, lack } of KINDS)
    if (lack !== undefined) test.skip(`${what}: skipped, ${lack}`, () => {});

  test("a signal that a PID 1 forwards ends it in order, and its commands with it", async () => {
    const kind: Kind = { ...BUSYBOX, what: "signal", writable: "/tmp" };
    const daemon = await start(kind, "under a PID 1 that reaps", await makeRoot(kind, "signal"));
    const running = daemon.exec({
      shell: "trap 'echo bye > /tmp/bye; exit' TERM; echo up; kill -TERM 1; sleep 60 & wait",
    });
    running.catch(() => {});
    expect(await daemon.exited).toBe(0);
    expect(await Bun.file(join(roots, "signal/tmp/bye")).text()).toBe("bye\n");
  });
});
