// Commands against the daemon that runs them, from inside a real sandbox: bombs, signals, what it keeps secret, and the
// ground it stands on. After each the same sandbox still works.
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { buildDaemon } from "../../agent/build.ts";
import type { ExecResult, Mesh, Sandbox } from "../../sdk/typescript/mod.ts";
import { eventually } from "../e2e/program.ts";
import { ChaosMesh, LONG, settled } from "./mesh.ts";

setDefaultTimeout(120_000);

let mesh: ChaosMesh;
let client: Mesh;
beforeAll(async () => {
  buildDaemon();
  mesh = await ChaosMesh.start();
  client = await mesh.connect({ lease: 60_000 });
});
afterAll(() => mesh?.[Symbol.asyncDispose]());

const acquire = (more: object = {}): Promise<Sandbox> => client.acquire({ image: "host", ...more });

/** Commands, sessions and files. */
async function works(box: Sandbox): Promise<void> {
  expect((await box.exec("echo $((6 * 7))")).stdout.text).toBe("42\n");
  await using session = await box.shell();
  expect((await session.exec("echo in a session")).stdout.text).toBe("in a session\n");
  await box.files.write("/root/f", "kept");
  expect(await box.files.readText("/root/f")).toBe("kept");
}

/** Private dirty memory of the sandbox's daemon, MiB. */
function privateMib(box: Sandbox): number {
  const rollup = readFileSync(`/proc/${mesh.sandboxPid(box.id, "daemon")}/smaps_rollup`, "utf8");
  return Number(/^Private_Dirty:\s+(\d+) kB/m.exec(rollup)?.[1]) / 1024;
}

describe("a bomb", () => {
  test("of processes ends at its time limit, and the sandbox works on", async () => {
    await using box = await acquire({ pids: 100 });
    const bomb = box.exec(["bash", "-c", "b() { b | b & b; }; b 2>/dev/null"], { timeout: 1_500, grace: 0 });
    // Meanwhile the daemon answers, and says what a command lacks where it lacks it.
    await eventually("the limit is reached", async () => {
      const info = await box.info();
      return info.pids_used === undefined || info.pids_used >= (info.pids_limit ?? Number.POSITIVE_INFINITY);
    });
    expect(await box.files.readText("/etc/passwd")).toContain("root:");
    expect((await box.files.stat("/etc")).type).toBe("dir");
    const meanwhile = await box.exec(["/bin/true"]);
    if (meanwhile.outcome.type === "not_started") expect(meanwhile.outcome.reason).toBe("out_of_pids");
    else expect(meanwhile.outcome.type).toBe("exited");
    expect((await bomb).outcome.type).toBe("timed_out");
    await eventually(
      "none of it is left",
      async () => (await box.exec("pgrep -c bash")).stdout.text === "0\n",
    );
    await works(box);
  });

  test("of processes that takes the last one leaves a daemon that says so of each command and session, and works on", async () => {
    await using box = await acquire({ pids: 60 });
    const taker = `
import os, sys, time
while True:
    try:
        if os.fork() == 0: time.sleep(600)
    except BlockingIOError:
        print("full", flush=True)
        sys.stdin.read()
        break`;
    const full = await box.start(["python3", "-c", taker], { stdinOpen: true });
    for await (const chunk of full.attach()) if (chunk.text.includes("full")) break;
    for (const command of ["true", ["/bin/true"]])
      expect((await box.exec(command)).outcome).toMatchObject({ type: "not_started", reason: "out_of_pids" });
    expect((await settled(box.shell())).error).toMatchObject({ code: "busy", started: "no" });
    await box.files.write("/root/meanwhile", "kept");
    expect(await box.files.readText("/root/meanwhile")).toBe("kept");
    expect(await full.cancel()).toBe(true);
    expect((await full.wait()).outcome.type).toBe("canceled");
    await works(box);
  });

  test("of memory is told as killed for memory, with the limit, and only that command is", async () => {
    await using box = await acquire({ memory: "96MiB" });
    const beside = box.exec("sleep 3; echo fine");
    const hog = await box.exec(["dd", "if=/dev/zero", "of=/dev/null", "bs=300M", "count=1"]);
    expect(hog.outcome).toEqual({ type: "oom_killed", limit_bytes: 96 * 1024 * 1024 });
    expect((await beside).stdout.text).toBe("fine\n");
    expect((await box.exec("kill -9 $$")).outcome).toMatchObject({ type: "signaled", signal: "SIGKILL" });
    await works(box);
  });

  test("of memory below a shell is the shell's exit code, and the sandbox works on", async () => {
    await using box = await acquire({ memory: "96MiB" });
    const hog = await box.exec("dd if=/dev/zero of=/dev/null bs=300M count=1; echo $?");
    expect(hog.stdout.text).toBe("137\n");
    // That kill is not the next one's, nor is one of background work, nor is it in a session.
    await box.exec(
      "(sleep 0.3; dd if=/dev/zero of=/dev/null bs=300M count=1; echo $? > /tmp/hog) > /dev/null 2>&1 &",
    );
    await eventually("background work is killed", () => box.files.exists("/tmp/hog"));
    expect((await box.exec("kill -9 $$")).outcome).toMatchObject({ type: "signaled", signal: "SIGKILL" });
    const session = await box.shell();
    expect((await session.exec("dd if=/dev/zero of=/dev/null bs=300M count=1")).exitCode).toBe(137);
    expect((await session.exec("kill -9 $$")).outcome).toMatchObject({ type: "signaled", signal: "SIGKILL" });
    await works(box);
  });

  test("of outputs that are kept for who asks again leaves a small sandbox room for commands", async () => {
    await using box = await acquire({ memory: "64MiB" });
    for (let i = 0; i < 24; i++) {
      const result = await box.exec(["head", "-c", "4000000", "/dev/zero"]);
      expect([i, result.outcome.type, result.stdout.totalBytes]).toEqual([i, "exited", 4_000_000]);
    }
    expect(privateMib(box)).toBeLessThan(40);
    await works(box);
  });

  test("of much output at once, read well, leaves a small sandbox its life and gives back what was read", async () => {
    await using box = await acquire({ memory: "64MiB" });
    const line = ["head", "-c", "8000000", "/dev/zero"];
    const results = await Promise.all(Array.from({ length: 16 }, () => box.exec(line)));
    for (const { stdout } of results) expect(stdout.bytes.length).toBe(8_000_000);
    await works(box);
  });

  test("of 60 commands whose readers have stalled leaves a small sandbox its life, and others go on", async () => {
    await using box = await acquire({ memory: "64MiB", pids: 200 });
    const held = Array.from({ length: 60 }, () => box.stream("yes")[Symbol.asyncIterator]());
    for (const iterator of held) expect((await iterator.next()).done).toBe(false);
    // What each may have on its way and wait with is full by then.
    await Bun.sleep(3_000);
    const { stdout } = await box.exec(["head", "-c", "6000000", "/dev/zero"]);
    expect(stdout.bytes.length).toBe(6_000_000);
    await works(box);
    for (const iterator of held) await iterator.return();
    await works(box);
  });

  test("of output from a command whose reader stalls leaves the daemon's memory flat", async () => {
    await using box = await acquire();
    await works(box);
    const bytes = (LONG ? 5 * 1024 : 100) * 1024 * 1024;
    const before = privateMib(box);
    let most = 0;
    let got = 0;
    let next = 0;
    const stream = box.stream(["head", "-c", String(bytes), "/dev/zero"], { outputLimit: bytes });
    for await (const chunk of stream) {
      got += chunk.data.length;
      if (got < next) continue;
      next = got + bytes / 20;
      await Bun.sleep(10);
      most = Math.max(most, privateMib(box));
    }
    expect(got).toBe(bytes);
    expect(most - before).toBeLessThan(24);
  });
});

describe("signals to the daemon from a command of its own uid", () => {
  test("none but those that ask it to end (HUP, INT, TERM) ends it", async () => {
    await using box = await acquire();
    const line =
      "for s in $(seq 1 64); do case $s in 1|2|15|32|33) ;; *) kill -$s 1 2>/dev/null;; esac; done; echo sent";
    expect((await box.exec(line)).stdout.text).toBe("sent\n");
    await works(box);
  });

  test("SIGTERM ends the sandbox in order: its callers hear a typed loss", async () => {
    const box = await acquire();
    const lost = new Promise<Error>((resolve) => box.onLost(resolve));
    const running = settled(box.exec("kill -TERM 1; sleep 60"));
    await lost;
    expect((await running).error?.code).toBe("sandbox_lost");
    await box.release();
  });
});

/** Each line of output is one way in that worked. */
const WAYS_IN = `
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, act):
    try:
        got = act()
    except OSError:
        return
    if got: print(name, repr(got)[:80])
for name in ("environ", "mem", "maps", "auxv", "syscall", "stack", "io", "map_files", "fd"):
    path = "/proc/1/" + name
    if name in ("map_files", "fd"):
        attempt(name, lambda: [os.readlink(path + "/" + each) for each in os.listdir(path)])
    elif name == "mem":
        attempt(name, lambda: os.pread(os.open(path, os.O_RDONLY), 16, 0x400000))
    else:
        attempt(name, lambda: open(path, "rb").read(64))
attempt("ptrace attach", lambda: libc.ptrace(16, 1, 0, 0) == 0)
attempt("ptrace seize", lambda: libc.ptrace(0x4206, 1, 0, 0) == 0)
pidfd = os.pidfd_open(1)
attempt("pidfd_getfd", lambda: any(libc.syscall(438, pidfd, fd, 0) >= 0 for fd in range(64)))
class iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]
buffer = ctypes.create_string_buffer(16)
mine, theirs = iovec(ctypes.addressof(buffer), 16), iovec(0x400000, 16)
attempt("process_vm_readv", lambda: libc.process_vm_readv(1, ctypes.byref(mine), 1, ctypes.byref(theirs), 1, 0) > 0)
attempt("prlimit", lambda: libc.prlimit64(1, 7, 0, ctypes.byref(ctypes.create_string_buffer(16))) == 0 and os.getuid() != 0 and "limits are no secret" and "")
`;

describe("what the daemon keeps secret", () => {
  const read = async (box: Sandbox, user?: string): Promise<ExecResult> =>
    box.exec(["python3", "-c", WAYS_IN], { ...(user !== undefined && { user }) });

  test("is hidden from root in the sandbox", async () => {
    await using box = await acquire();
    const result = await read(box);
    expect([result.outcome, result.stdout.text, result.stderr.text]).toEqual([
      { type: "exited", code: 0 },
      "",
      "",
    ]);
  });

  test("is hidden from another user", async () => {
    await using box = await acquire();
    expect((await read(box, "nobody")).stdout.text).toBe("");
  });

  test("is hidden from commands of the daemon's own user where that is not root", async () => {
    await using box = await acquire({ user: "nobody" });
    const result = await read(box);
    expect([result.outcome, result.stdout.text]).toEqual([{ type: "exited", code: 0 }, ""]);
  });

  test("is neither in the environment, the arguments nor the files that a command sees", async () => {
    await using box = await acquire();
    const result = await box.exec(
      "env; cat /proc/*/environ /proc/*/cmdline; grep -raE 'SU[A-Z2-7]{56}' /tmp /run; true",
    );
    // Seeds of users begin so (nkeys).
    expect(result.stdout.text).not.toMatch(/SU[A-Z2-7]{56}|SANDMESH_BOOTSTRAP=/);
  });
});

describe("the ground taken away", () => {
  test("/tmp, /var/tmp and /run deleted: later commands, sessions and files work", async () => {
    await using box = await acquire();
    await box.exec("rm -rf /tmp /var/tmp /run");
    await works(box);
    await box.files.write("/tmp/again", "x");
    expect(await box.files.readText("/tmp/again")).toBe("x");
  });

  test("the daemon's own mount cannot be changed, moved, covered or unmounted", async () => {
    await using box = await acquire();
    const result = await box.exec(
      "D=/.sandmesh; rm -rf $D; mv $D /gone; umount -l $D; mount -t tmpfs none $D; echo x > $D/x; touch $D/daemon/x; ls $D/daemon",
    );
    expect(result.stdout.text).toContain("sandmesh-daemon\n");
    await works(box);
  });

  test("the working folder deleted: a command there is told so, and one elsewhere runs", async () => {
    await using box = await acquire({ cwd: "/tmp/work" });
    expect((await box.exec("pwd")).stdout.text).toBe("/tmp/work\n");
    await box.exec("rm -rf /tmp/work");
    expect((await box.exec("pwd")).outcome).toMatchObject({ type: "not_started", reason: "no_such_cwd" });
    expect((await box.exec("pwd", { cwd: "/" })).stdout.text).toBe("/\n");
  });
});

describe("many commands", () => {
  test("1,000 at once over the wire: each its own output, none lost", async () => {
    await using box = await acquire();
    const results = await Promise.all(
      Array.from({ length: 1_000 }, (_, i) => box.exec(["echo", String(i)], { timeout: "90s" })),
    );
    expect(results.map(({ stdout }) => Number(stdout.text))).toEqual(
      Array.from({ length: 1_000 }, (_, i) => i),
    );
  });

  test("thousands in a row: the daemon's memory is flat, and no descriptor or zombie is left", async () => {
    await using box = await acquire();
    const some = async (count: number): Promise<void> => {
      for (let i = 0; i < count; i += 32)
        await Promise.all(Array.from({ length: 32 }, () => box.exec(["/bin/echo", "some output"])));
    };
    const fds = (): number => readdirSync(`/proc/${mesh.sandboxPid(box.id, "daemon")}/fd`).length;
    // More than the records that are kept, so that what grows after it is a leak.
    await some(5_000);
    const [before, open] = [privateMib(box), fds()];
    await some(LONG ? 100_000 : 5_000);
    expect(privateMib(box) - before).toBeLessThan(LONG ? 6 : 8);
    expect(fds()).toBeLessThanOrEqual(open);
    expect((await box.exec("grep -l '^State:.Z' /proc/[0-9]*/status")).stdout.text).toBe("");
  });
});
