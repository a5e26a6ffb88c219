// The daemon as a program, against a real nats-server: in the machine's root, and in roots with next to nothing.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { testServer } from "../broker/server/testing.ts";
import { buildDaemon } from "./build.ts";
import { alive, until } from "./exec/testing.ts";
import { mountHanging } from "./files/hanging.testing.ts";
import { EXIT } from "./main.ts";
import { daemonInRoot, type TestDaemon, type TestMesh, testMesh } from "./testing.ts";

let mesh: TestMesh;
let folder: string;
let agent: string;
beforeAll(async () => {
  folder = buildDaemon();
  agent = join(folder, "sandmesh-agent");
  mesh = await testMesh(await testServer());
}, 120_000);
afterAll(() => mesh[Symbol.asyncDispose]());

const text = (data: Uint8Array | undefined): string => Buffer.from(data ?? []).toString();

/** What the daemon's main thread waits for in poll, as it was asked to; 0 where it is not there. */
function sleepsForMs(pid: number): number {
  const [number, , , limit, , signals] = readFileSync(`/proc/${pid}/syscall`, "latin1").split(" ");
  const POLL = "7";
  // Other machines have ppoll only (73), with a time that is not to be read from here, and no signals.
  if (process.arch !== "x64") return number === "73" && signals === "0x0" ? Number.POSITIVE_INFINITY : 0;
  return number === POLL ? Number(limit) : 0;
}

async function endByTerm(daemon: TestDaemon): Promise<void> {
  process.kill(daemon.pid, "SIGTERM");
  expect(await daemon.exited).toBe(EXIT.ended);
}

describe("the daemon", () => {
  test("becomes ready, runs commands, and ends all of them on SIGTERM", async () => {
    const daemon = await mesh.start({ argv: [agent] });
    const end = await daemon.exec({ shell: "echo hi; sleep 71 & echo $! >&2; exit 3" });
    expect(end.outcome).toEqual({ type: "exited", code: 3 });
    expect(text(end.stdout)).toBe("hi\n");
    const background = Number(text(end.stderr));
    expect(await alive(background)).toBe(true);
    const running = daemon.exec({ argv: ["sleep", "72"] });
    running.catch(() => {});
    await endByTerm(daemon);
    expect(await alive(background)).toBe(false);
  }, 30_000);

  test("sleeps until its next timer when nothing happens, and is woken by time limits, requests and signals", async () => {
    const daemon = await mesh.start({ argv: [agent] });
    const end = await daemon.exec({ argv: ["sleep", "74"], timeout_ms: 3000 });
    expect(end.outcome.type).toBe("timed_out");
    for (const answer of ["one", "two"]) {
      await until("it sleeps for longer than the runtime's loop would", () => sleepsForMs(daemon.pid) > 2000);
      expect(text((await daemon.exec({ shell: `echo ${answer}` })).stdout)).toBe(`${answer}\n`);
    }
    await until("it sleeps again", () => sleepsForMs(daemon.pid) > 2000);
    await endByTerm(daemon);
  }, 30_000);

  test("starts the image's own program beside itself, with the sandbox's words and folder, and ends it with itself", async () => {
    const script = 'echo "$$ $GIVEN in $PWD: $1" > "$2"; exec sleep 73';
    const file = join(mkdtempSync(join(tmpdir(), "sandmesh-entrypoint-")), "pid");
    const bootstrap = {
      cwd: "/usr",
      env: { GIVEN: "by pool" },
      entrypoint: ["sh", "-c", script, "sh", "a b", file],
    };
    const daemon = await mesh.start({ argv: [agent], bootstrap });
    const said = (): string => (existsSync(file) ? readFileSync(file, "utf8") : "");
    await until("it runs", () => said().endsWith("\n"));
    expect(said()).toContain(" by pool in /usr: a b\n");
    const pid = Number.parseInt(said(), 10);
    expect(await alive(pid)).toBe(true);
    expect(text((await daemon.exec({ argv: ["echo", "hi"] })).stdout)).toBe("hi\n");
    await endByTerm(daemon);
    expect(await alive(pid)).toBe(false);
    rmSync(dirname(file), { recursive: true });
  }, 30_000);

  test("whoever starts it may have blocked every signal: it ends by SIGTERM all the same, and no command's end wakes a thread for nothing", async () => {
    const blocking = `import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
os.execv(sys.argv[1], sys.argv[1:])`;
    const daemon = await mesh.start({ argv: ["python3", "-c", blocking, agent] });
    expect((await daemon.exec({ argv: ["true"] })).outcome).toEqual({ type: "exited", code: 0 });
    const status = readFileSync(`/proc/${daemon.pid}/status`, "latin1");
    expect(/^SigBlk:\t(.*)$/m.exec(status)?.[1]).toMatch(/^0+$/);
    await endByTerm(daemon);
  }, 30_000);

  test("a program of the image that cannot be run costs the sandbox nothing but a line in the log", async () => {
    const daemon = await mesh.start({ argv: [agent], bootstrap: { entrypoint: ["/no/such"] } });
    expect((await daemon.exec({ argv: ["true"] })).outcome).toEqual({ type: "exited", code: 0 });
    await endByTerm(daemon);
    expect(await daemon.stderr).toContain("the entrypoint has ended");
  }, 30_000);

  test("hides from itself what the image's environment would do to it, and hands it to commands", async () => {
    const hostile = {
      LD_PRELOAD: "/no/such.so",
      LD_LIBRARY_PATH: "/no/such",
      BUN_OPTIONS: "--no-such-option",
      BUN_BE_BUN: "1",
      NODE_OPTIONS: "--no-such-option",
      GOMAXPROCS: "1",
      LANG: "xx_XX.NONE",
      LC_ALL: "",
      SANDMESH_KEPT_FORGED: "1",
    };
    const daemon = await mesh.start({
      argv: [agent],
      env: hostile,
      bootstrap: { env: { GIVEN: "by pool" } },
    });
    const end = await daemon.exec({ argv: ["/usr/bin/env"] });
    const lines = text(end.stdout).split("\n");
    for (const [name, value] of Object.entries(hostile))
      if (!name.startsWith("SANDMESH")) expect(lines).toContain(`${name}=${value}`);
    expect(lines).toContain("GIVEN=by pool");
    const own = lines
      .map((line) => line.split("=")[0] ?? "")
      .filter((name) => /^(SANDMESH|BUN|MIMALLOC|UV)_/.test(name));
    expect(own.sort()).toEqual(["BUN_BE_BUN", "BUN_OPTIONS", "SANDMESH_COMMAND"]);
    await endByTerm(daemon);
  }, 30_000);

  test("files on a file system that does not answer keep neither commands nor other files waiting", async () => {
    await using hanging = await mountHanging(20);
    if (hanging === undefined) return;
    const daemon = await mesh.start({ argv: [agent], env: { GOMAXPROCS: "1" } });
    const waiting = [
      ...Array.from({ length: 4 }, () => daemon.request("hash", { path: hanging.stuck })),
      daemon.request("pack", { path: hanging.place }),
    ];
    const ends = Promise.allSettled(waiting);
    expect(await daemon.request("stat", { path: "/" })).toMatchObject({ type: "dir" });
    expect((await daemon.exec({ argv: ["true"] })).outcome).toEqual({ type: "exited", code: 0 });
    expect(await daemon.request("list", { path: "/" })).toMatchObject({ more: false });
    hanging.end();
    expect((await ends).length).toBe(5);
    await endByTerm(daemon);
  }, 30_000);

  test("owes nothing to what its parent ignored, blocked, closed or set going", async () => {
    const hostile = `
import os, signal, sys
for s in range(1, 65):
    try: signal.signal(s, signal.SIG_IGN)
    except (OSError, ValueError): pass
signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
signal.setitimer(signal.ITIMER_REAL, 0.5)
os.close(0); os.close(1)
os.dup2(os.open("/etc/passwd", os.O_RDONLY), 77, inheritable=True)
os.execv(sys.argv[1], sys.argv[1:])`;
    const daemon = await mesh.start({ argv: ["python3", "-c", hostile, agent] });
    // Beyond the parent's alarm.
    const end = await daemon.exec({ shell: "sleep 0.7; exit 3" });
    expect(end.outcome).toEqual({ type: "exited", code: 3 });
    const status = text((await daemon.exec({ argv: ["cat", "/proc/self/status"] })).stdout);
    expect(status.match(/^Sig(Blk|Ign):\t0{16}$/gm)?.length).toBe(2);
    expect(text((await daemon.exec({ argv: ["ls", "/proc/self/fd"] })).stdout)).toBe("0\n1\n2\n3\n");
    await endByTerm(daemon);
  }, 30_000);

  test("keeps no secret where commands of its user can read it", async () => {
    const daemon = await mesh.start({ argv: [agent] });
    const end = await daemon.exec({
      shell:
        "tr '\\0' '\\n' < /proc/$PPID/environ; tr '\\0' ' ' < /proc/$PPID/cmdline; echo; ls -l /proc/$PPID/fd",
    });
    expect(end.outcome).toEqual({ type: "exited", code: 0 });
    expect(text(end.stdout)).not.toContain("jwt");
    expect(text(end.stdout)).not.toContain("BOOTSTRAP");
    expect(text(end.stdout)).not.toContain("memfd");
    await endByTerm(daemon);
  }, 30_000);

  test("logs no secret of a command's, at any level, also where it fails", async () => {
    const daemon = await mesh.start({
      argv: [agent, "--log-level", "debug"],
      bootstrap: { env: { FROM_POOL: "secret-of-the-pool" } },
    });
    const env = { TOKEN: "secret-in-env" };
    await daemon.exec({ shell: "echo secret-in-a-line; exit 1", env, stdin: Buffer.from("secret-in-stdin") });
    await daemon.exec({ argv: ["/no/such/secret-in-argv"], env });
    await daemon.exec({ argv: ["true"], cwd: "/secret-in-cwd", env });
    await daemon.request("exec", { argv: ["secret-in-argv"], env: { TOKEN: "secret-in-env\0" } });
    await daemon.request("exec", { argv: 5, shell: "secret-in-a-line", env });
    await daemon.request("write", {
      path: "/no/such/secret-in-path/x",
      data: Buffer.from("secret"),
      parents: false,
    });
    await daemon.request("no_such_verb", { secret: "secret-in-a-field" });
    await endByTerm(daemon);
    const log = await daemon.stderr;
    // It does log, at this level.
    expect(log).toContain('"ready"');
    expect(log).not.toContain("secret");
  }, 30_000);

  test("tells what is wrong with how it is started, by message and exit code", async () => {
    const wrong = mesh.spawn({ argv: [agent], bootstrap: { sandbox: "a.b" } });
    expect(await wrong.exited).toBe(EXIT.usage);
    expect(await wrong.stderr).toContain("sandbox");
    expect(await mesh.spawn({ argv: [agent, "--no-such-option"] }).exited).toBe(EXIT.usage);
    const refused = mesh.spawn({
      argv: [agent],
      bootstrap: { boot_timeout_ms: 700, urls: ["nats://127.0.0.1:1"] },
    });
    expect(await refused.exited).toBe(EXIT.notReady);
  }, 30_000);

  test("ends itself when the pool is not heard any more", async () => {
    const daemon = await mesh.start({ argv: [agent], deadManMs: 300 });
    expect(await daemon.exited).toBe(EXIT.abandoned);
  }, 30_000);

  test("ends, with what it runs, when the pool releases it", async () => {
    const daemon = await mesh.start({ argv: [agent] });
    const end = await daemon.exec({ shell: "setsid sleep 73 >/dev/null 2>&1 & echo $!" });
    daemon.control("release", { version: 1, generation: 1, reason: "done" });
    expect(await daemon.exited).toBe(EXIT.ended);
    expect(await alive(Number(text(end.stdout)))).toBe(false);
  }, 30_000);
});

// Mounts and chroot need root; the local provider's tests cover unprivileged users.
describe.if(process.getuid?.() === 0)("in a root of its own, as PID 1", () => {
  let roots: string;
  beforeAll(() => {
    roots = mkdtempSync(join(tmpdir(), "roots-test-"));
  });
  afterAll(() => rmSync(roots, { recursive: true, force: true }));
  const makeRoot = (name: string): string => {
    const root = join(roots, name);
    for (const sub of ["proc", "dev", "sandmesh"]) mkdirSync(join(root, sub), { recursive: true });
    return root;
  };

  test("with nothing but busybox: shell, users, orphans", async () => {
    const root = makeRoot("busybox");
    mkdirSync(join(root, "bin"));
    copyFileSync("/bin/busybox", join(root, "bin/busybox"));
    const daemon = await mesh.start({
      argv: daemonInRoot(folder, root),
      env: { PATH: "/usr/bin:/bin:/usr/sbin:/sbin" },
    });
    const end = await daemon.exec({
      shell: "echo $PPID; (setsid busybox true &); busybox id -u; busybox pwd",
    });
    expect(text(end.stdout)).toBe("1\n0\n/\n");
    expect((await daemon.exec({ argv: ["bash"] })).outcome).toMatchObject({ reason: "no_such_program" });
    const info = await daemon.request("info", {});
    expect(info).toMatchObject({ pid: 1, shells: ["/bin/busybox sh"] });
    await until("no orphan is left", async () => {
      const list = await daemon.exec({ shell: "busybox grep -l '^State:.Z' /proc/[0-9]*/status" });
      return list.outcome.type === "exited" && list.outcome.code === 1;
    });
    daemon.control("release", { version: 1, generation: 1, reason: "done" });
    expect(await daemon.exited).toBe(EXIT.ended);
  }, 60_000);

  test("with one static program and no shell; a hostile ld.so.preload", async () => {
    const root = makeRoot("scratch");
    copyFileSync("/bin/busybox", join(root, "echo"));
    mkdirSync(join(root, "etc"));
    writeFileSync(join(root, "etc/ld.so.preload"), "/no/such/library.so\n");
    const daemon = await mesh.start({
      argv: daemonInRoot(folder, root),
      env: { PATH: "/usr/bin:/bin:/usr/sbin:/sbin" },
    });
    expect(text((await daemon.exec({ argv: ["/echo", "a", "b"] })).stdout)).toBe("a b\n");
    expect((await daemon.exec({ shell: "echo" })).outcome).toMatchObject({
      type: "not_started",
      reason: "no_shell",
    });
    daemon.control("release", { version: 1, generation: 1, reason: "done" });
    expect(await daemon.exited).toBe(EXIT.ended);
    expect(await daemon.stderr).toBe("");
  }, 60_000);

  test("without /proc or /dev/urandom: one clear line", async () => {
    const root = makeRoot("nothing");
    const noProc = mesh.spawn({ argv: daemonInRoot(folder, root, 'umount "$R/proc"') });
    expect([await noProc.exited, await noProc.stderr]).toEqual([
      EXIT.cannotRun,
      "sandmesh-agent: this sandbox has no /proc; mount proc there\n",
    ]);
    const noRandom = mesh.spawn({
      argv: daemonInRoot(folder, root, 'umount "$R/dev/urandom"; rm "$R/dev/urandom"'),
    });
    expect([await noRandom.exited, await noRandom.stderr]).toEqual([
      EXIT.cannotRun,
      "sandmesh-agent: this sandbox has no readable /dev/urandom\n",
    ]);
    expect(existsSync(join(root, "proc"))).toBe(true);
  }, 60_000);
});
