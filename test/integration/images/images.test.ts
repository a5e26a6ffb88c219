// One daemon in every kind of image: a program runs by argv in each, and a shell line in each that has a shell.
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import { buildDaemon } from "../../../agent/build.ts";
import { connect, type Mesh, type Sandbox, type SpecOptions } from "../../../sdk/typescript/mod.ts";
import { type LocalMesh, localMesh } from "../../e2e/program.ts";
import {
  busyboxEntries,
  HOSTILE_ENV,
  makeBusyboxRoot,
  makeOciLayout,
  makeStaticRoot,
} from "../../images/images.ts";
import { lackOfMusl, makeMuslProgramRoot, makeMuslRoot } from "../../images/musl.ts";

setDefaultTimeout(60_000);

interface Kind {
  what: string;
  /** Makes it at `path`; answers the spec. */
  make(path: string): Promise<SpecOptions>;
  argv: string[];
  /** Whether it has a shell. */
  shell: boolean;
  /** The uid that commands run as. */
  uid?: number;
  /** Why it cannot be made on this machine. */
  lack?: string | undefined;
}

const busybox = async (path: string, more: Partial<SpecOptions> = {}): Promise<SpecOptions> => ({
  image: await makeBusyboxRoot(path),
  ...more,
});
const BUSYBOX_ECHO = ["/bin/echo", "a  b", "é"];

const KINDS: Kind[] = [
  {
    what: "this machine's own root (glibc, bash)",
    make: async () => ({ image: "host" }),
    argv: ["/bin/echo", "a  b", "é"],
    shell: true,
  },
  { what: "nothing but busybox", make: busybox, argv: BUSYBOX_ECHO, shell: true },
  {
    what: "musl as its only libc, for its shell and programs",
    make: async (path) => ({ image: await makeMuslRoot(path) }),
    argv: ["/say", "a  b", "é"],
    shell: true,
    lack: lackOfMusl(),
  },
  {
    what: "musl as its only libc, no shell",
    make: async (path) => ({ image: await makeMuslProgramRoot(path) }),
    argv: ["/say", "a  b", "é"],
    shell: false,
  },
  {
    what: "one static program (scratch)",
    make: async (path) => ({ image: await makeStaticRoot(path) }),
    argv: ["/echo", "a  b", "é"],
    shell: false,
  },
  {
    what: "a USER other than root, and a working folder",
    make: async (path) => {
      const config = { User: "agent", WorkingDir: "/home/agent" };
      await makeOciLayout(path, { layers: [await busyboxEntries()], config });
      return { image: path };
    },
    argv: BUSYBOX_ECHO,
    shell: true,
    uid: 1000,
  },
  {
    what: "no /etc/passwd, no /etc/group",
    make: async (path) => {
      const spec = await busybox(path);
      for (const name of ["passwd", "group"]) await rm(join(path, "etc", name));
      return spec;
    },
    argv: BUSYBOX_ECHO,
    shell: true,
  },
  {
    what: "an environment against its programs",
    make: (path) => busybox(path, { env: HOSTILE_ENV }),
    argv: BUSYBOX_ECHO,
    shell: true,
  },
  {
    what: "no PATH",
    make: (path) => busybox(path, { env: { PATH: null } }),
    argv: BUSYBOX_ECHO,
    shell: true,
  },
  {
    what: "64 MiB of memory",
    make: (path) => busybox(path, { memory: "64MiB" }),
    argv: BUSYBOX_ECHO,
    shell: true,
  },
];

// A root of one's own other than `host` needs root.
describe.if(process.getuid?.() === 0)("an image with", () => {
  let local: LocalMesh;
  let mesh: Mesh;
  let folder: string;
  beforeAll(async () => {
    folder = await mkdtemp("/var/tmp/sandmesh-images-");
    buildDaemon();
    local = await localMesh({ providers: ["local"] });
    mesh = await connect({ url: local.url, credentials: local.credentials, handleSignals: false });
  });
  afterAll(async () => {
    await mesh?.close();
    const left = await local?.end();
    await rm(folder, { recursive: true, force: true });
    expect(Object.entries(left ?? {}).filter(([, count]) => Number(count) > 0)).toEqual([]);
  });

  const can = KINDS.filter(({ lack }) => lack === undefined);
  test.each(can.map((kind, i) => [kind.what, kind, i] as const))("%s", async (_, kind, i) => {
    await using box = await mesh.acquire(await kind.make(join(folder, `image-${i}`)));
    const said = await box.exec(kind.argv);
    expect([said.outcome, said.stdout.text]).toEqual([{ type: "exited", code: 0 }, "a  b é\n"]);
    await shellLine(box, kind.shell);
    if (kind.shell) {
      await session(box);
      await terminal(box);
    }
    const missing = await box.exec(["/no/such/program"]);
    expect(missing.outcome).toMatchObject({ type: "not_started", reason: "no_such_program" });
    await files(box);
    const info = await box.info();
    expect([info.uid, info.shells.length > 0]).toEqual([kind.uid ?? 0, kind.shell]);
  });

  for (const { what, lack } of KINDS)
    if (lack !== undefined) test.skip(`${what}: skipped, ${lack}`, () => {});

  test("a command beyond 64 MiB is told as killed for memory, and the daemon lives", async () => {
    await using box = await mesh.acquire(await busybox(join(folder, "image-oom"), { memory: "64MiB" }));
    const { memory_limit_bytes } = await box.info();
    // A machine whose cgroups cannot be written says so in not_isolated.
    if (memory_limit_bytes === undefined) return;
    const hog = await box.exec(["/bin/dd", "if=/dev/zero", "of=/dev/null", "bs=200M", "count=1"]);
    expect(hog.outcome).toEqual({ type: "oom_killed", limit_bytes: 64 * 1024 * 1024 });
    expect((await box.exec(BUSYBOX_ECHO)).ok).toBe(true);
    // The next one's own SIGKILL is not put down to memory.
    expect((await box.exec("kill -9 $$")).outcome).toMatchObject({ type: "signaled", signal: "SIGKILL" });
  });
});

async function shellLine(box: Sandbox, has: boolean): Promise<void> {
  const line = await box.exec("echo $((6 * 7)); exit 3");
  if (has) expect([line.outcome, line.stdout.text]).toEqual([{ type: "exited", code: 3 }, "42\n"]);
  else expect(line.outcome).toMatchObject({ type: "not_started", reason: "no_shell" });
}

async function session(box: Sandbox): Promise<void> {
  const shell = await box.shell({ shell: "sh" });
  await shell.exec("N=7; f() { echo $((N * 6)); }; cd /tmp");
  expect((await shell.exec("f; pwd")).stdout.text).toBe("42\n/tmp\n");
  await shell.close();
}

async function terminal(box: Sandbox): Promise<void> {
  await using opened = await box.terminal({ command: "[ -t 0 ] && read -r word && echo typed $word" });
  await opened.write("there\r");
  const seen: Uint8Array[] = [];
  for await (const { data } of opened.output) seen.push(data);
  expect(Buffer.concat(seen).toString()).toContain("typed there\r\n");
  expect((await opened.end).outcome).toEqual({ type: "exited", code: 0 });
}

async function files(box: Sandbox): Promise<void> {
  const bytes = Uint8Array.from([0xff, 0, 0x0d, 0x0a]);
  await box.files.write("/tmp/f", bytes);
  expect([...(await box.files.read("/tmp/f"))]).toEqual([...bytes]);
}
