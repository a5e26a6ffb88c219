// What commands do, with real processes.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { signalName } from "../../broker/contract/index.ts";
import type { Commands } from "./exec.ts";
import { begin, run, testCommands } from "./testing.ts";

let commands: Commands;
let folder: string;
beforeAll(async () => {
  commands = await testCommands();
  folder = mkdtempSync(join(tmpdir(), "exec-test-"));
  chmodSync(folder, 0o755);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const program = (name: string, text: string, mode = 0o755): string => {
  const path = join(folder, name);
  writeFileSync(path, text);
  chmodSync(path, mode);
  return path;
};

/** Stops each child of the given process as soon as it sees it, once, and lets it go on where it has come to its exec. */
const STOPPER = `
import os, signal, sys
daemon = sys.argv[1]
exe = os.readlink(f"/proc/{daemon}/exe")
children = f"/proc/{daemon}/task"
print("up", flush=True)
seen = set()
while True:
    for task in os.listdir(children):
        for pid in open(f"{children}/{task}/children").read().split():
            if pid in seen or int(pid) == os.getpid(): continue
            seen.add(pid)
            try:
                os.kill(int(pid), signal.SIGSTOP)
                if os.readlink(f"/proc/{pid}/exe") != exe: os.kill(int(pid), signal.SIGCONT)
            except OSError: pass
`;

describe("outcomes", () => {
  test("every exit code is told as it is", async () => {
    const codes = Array.from({ length: 256 }, (_, code) => code);
    const ends = await Promise.all(
      codes.map((code) => run(commands, { argv: ["sh", "-c", `exit ${code}`] })),
    );
    expect(ends.map((end) => end.outcome)).toEqual(codes.map((code) => ({ type: "exited", code })));
  });

  test("every signal that ends a process is told by its name, and none as an exit code", async () => {
    const ending = Array.from({ length: 64 }, (_, i) => i + 1).filter(
      (s) => ![17, 18, 19, 20, 21, 22, 23, 28, 32, 33].includes(s),
    );
    const ends = await Promise.all(
      ending.map((s) => run(commands, { argv: ["sh", "-c", `ulimit -c 0; kill -${s} $$`] })),
    );
    for (const [i, end] of ends.entries())
      expect(end.outcome).toEqual({
        type: "signaled",
        signal: signalName(ending[i] ?? 0),
        core_dumped: false,
      });
  });

  test("SIGKILL is told from exit code 137", async () => {
    expect((await run(commands, { shell: "exit 137" })).outcome).toEqual({ type: "exited", code: 137 });
    expect((await run(commands, { shell: "kill -9 $$" })).outcome).toMatchObject({
      type: "signaled",
      signal: "SIGKILL",
    });
  });

  const reasons: [string, () => Record<string, unknown>, string][] = [
    ["no program of that name", () => ({ argv: ["no-such-program"] }), "no_such_program"],
    ["no file at that path", () => ({ argv: ["/no/such/program"] }), "no_such_program"],
    ["the empty name", () => ({ argv: [""] }), "no_such_program"],
    [
      "a missing interpreter",
      () => ({ argv: [program("interp", "#!/no/such/interpreter\n")] }),
      "exec_format",
    ],
    ["a file that is not executable", () => ({ argv: [program("plain", "hello", 0o644)] }), "not_executable"],
    ["a folder", () => ({ argv: [folder] }), "not_executable"],
    ["a file of no format", () => ({ argv: [program("noformat", "hello\n")] }), "exec_format"],
    ["a missing cwd", () => ({ argv: ["true"], cwd: "/no/such/folder" }), "no_such_cwd"],
    ["a cwd that is a file", () => ({ argv: ["true"], cwd: program("file", "") }), "no_such_cwd"],
    ["a missing cwd before a missing program", () => ({ argv: ["no-such"], cwd: "/no/such" }), "no_such_cwd"],
    ["a missing user", () => ({ argv: ["true"], user: "nobody-of-that-name" }), "no_such_user"],
    [
      "too many arguments",
      () => ({ argv: ["true", ...Array(60).fill("x".repeat(100_000))] }),
      "argument_list_too_long",
    ],
  ];
  test.each(reasons)("not started for %s", async (_, request, reason) => {
    const end = await run(commands, request());
    expect(end.outcome).toMatchObject({ type: "not_started", reason });
    expect(end.pid).toBeUndefined();
  });

  test("a program that another user may not execute is a matter of permission", async () => {
    mkdirSync(join(folder, "private"), { mode: 0o700 });
    const path = program("private/tool", "#!/bin/sh\n");
    const end = await run(commands, { argv: [path], user: "65534:65534" });
    expect(end.outcome).toMatchObject({ type: "not_started", reason: "permission" });
    const inside = await run(commands, { argv: ["true"], cwd: join(folder, "private"), user: "65534:65534" });
    expect(inside.outcome).toMatchObject({ type: "not_started", reason: "permission" });
  });
});

describe("bytes", () => {
  test("ff 00 0d 0a and a last line without newline come as they were written", async () => {
    const end = await run(commands, { argv: ["printf", "\\377\\000\\r\\n\\342\\200\\250last"] });
    expect(end.stdout).toEqual(Buffer.from("ff000d0ae280a86c617374", "hex"));
  });

  test("blank lines, CR LF, U+2028 and no last newline arrive as they were given, in whatever they are given by", async () => {
    const odd = "\n\nfirst\r\n\n\u2028second\u2029\u0085\n\n  last";
    const same = Buffer.from(odd);
    expect((await run(commands, { argv: ["cat"], stdin: same })).stdout).toEqual(same);
    expect((await run(commands, { argv: ["printf", "%s", odd] })).stdout).toEqual(same);
    expect((await run(commands, { shell: `printf %s '${odd}'` })).stdout).toEqual(same);
    expect((await run(commands, { shell: `cat <<'END'\n${odd}\nEND\n` })).text).toBe(`${odd}\n`);
    expect((await run(commands, { shell: 'printf %s "$ODD"', env: { ODD: odd } })).stdout).toEqual(same);
    const parts = begin(commands, { argv: ["cat"], stdin_open: true });
    for (const byte of same) await parts.command.stdin(Buffer.of(byte));
    parts.command.closeStdin();
    expect((await parts.ended).stdout).toEqual(same);
  });

  test("5 MB of output on both streams are complete", async () => {
    const end = await run(commands, {
      shell: "head -c 5000000 /dev/zero | tr '\\0' a; head -c 5000000 /dev/zero | tr '\\0' b >&2",
    });
    expect(end.stdout.equals(Buffer.alloc(5_000_000, "a"))).toBe(true);
    expect(end.stderr.equals(Buffer.alloc(5_000_000, "b"))).toBe(true);
  });

  test("a talkative command's small writes, on both streams by turns, are complete and in order", async () => {
    const count = 60_000;
    const end = await run(commands, {
      shell: `i=0; while [ $i -lt ${count} ]; do echo $i; echo $i >&2; i=$((i+1)); done`,
    });
    const lines = Array.from({ length: count }, (_, i) => `${i}\n`).join("");
    expect(end.text).toBe(lines);
    expect(end.stderr.toString()).toBe(lines);
  });

  test("programs that open /dev/stdout and /proc/self/fd/1 can", async () => {
    const end = await run(commands, {
      shell: "echo a > /dev/stdout; echo b > /proc/self/fd/1; echo c > /dev/stderr",
    });
    expect([end.text, end.stderr.toString()]).toEqual(["a\nb\n", "c\n"]);
    const other = await run(commands, { shell: "echo a > /dev/stdout", user: "65534" });
    expect(other.text).toBe("a\n");
  });

  test("merged output keeps its order", async () => {
    const line = "for i in 1 2 3 4 5 6 7 8 9; do echo o$i; echo e$i >&2; done";
    const end = await run(commands, { shell: line, merge: true });
    expect(end.text).toBe(Array.from({ length: 9 }, (_, i) => `o${i + 1}\ne${i + 1}\n`).join(""));
    expect(end.stderr.length).toBe(0);
  });

  test("1 MB of stdin arrives whole, and its end is seen", async () => {
    const stdin = Buffer.alloc(1_000_000, "0123456789");
    const end = await run(commands, { argv: ["cat"], stdin });
    expect(end.stdout.equals(stdin)).toBe(true);
  });

  test("stdin in parts is taken as the command reads, then closed", async () => {
    const running = begin(commands, {
      shell: "head -c 4; echo; cat | wc -c",
      stdin_open: true,
      stdin: Buffer.from("ab"),
    });
    for (let i = 0; i < 10; i++) await running.command.stdin(Buffer.alloc(100_000, "c"));
    running.command.closeStdin();
    expect((await running.ended).text.split("\n")[0]).toBe("abcc");
    expect((await running.ended).outcome).toEqual({ type: "exited", code: 0 });
  });

  test("a command that closes stdin lets the writer go on", async () => {
    const running = begin(commands, { shell: "exec <&-; echo closed; read x; true", stdin_open: true });
    await running.until("closed");
    for (let i = 0; i < 5; i++) await running.command.stdin(Buffer.alloc(200_000));
    expect((await running.ended).outcome).toMatchObject({ type: "exited" });
  });

  test("no stdin is /dev/null, not a wait for ever", async () => {
    expect((await run(commands, { argv: ["cat"] })).outcome).toEqual({ type: "exited", code: 0 });
    expect((await run(commands, { argv: ["readlink", "/proc/self/fd/0"] })).text).toBe("/dev/null\n");
  });
});

describe("what a command starts with", () => {
  test("three descriptors and not one more", async () => {
    const end = await run(commands, { argv: ["ls", "/proc/self/fd"] });
    // The fourth is ls' own, of the folder it lists.
    expect(end.text).toBe("0\n1\n2\n3\n");
  });

  test("no signal blocked or ignored", async () => {
    const end = await run(commands, { argv: ["cat", "/proc/self/status"] });
    expect(end.text.match(/^Sig(Blk|Ign|Cgt):\t0{16}$/gm)?.length).toBe(3);
  });

  test("a session and a group of its own", async () => {
    const end = await run(commands, { argv: ["cat", "/proc/self/stat"] });
    const [pid, , , , group, session, terminal] = end.text.split(" ");
    expect([group, session, terminal]).toEqual([pid ?? "", pid ?? "", "0"]);
  });

  test("environment added, replaced and removed", async () => {
    const added = await run(commands, { argv: ["env"], env: { A_1: "x=ü\n", PATH: null } });
    expect(added.text).toContain("A_1=x=ü\n");
    expect(added.text).not.toMatch(/^PATH=/m);
    const replaced = await run(commands, { argv: ["/usr/bin/env"], env: { ONLY: "1" }, env_replace: true });
    expect(replaced.text.split("\n").filter((line) => !line.startsWith("SANDMESH_COMMAND="))).toEqual([
      "ONLY=1",
      "",
    ]);
  });

  test("what the file that BASH_ENV names sets up, whoever starts the shell", async () => {
    const env = {
      BASH_ENV: program("bash-env", "greet() { echo hello $1; }\nexport SEEN=exported\n", 0o644),
    };
    // A shell that was started ahead (native/spare.c) among them.
    for (let i = 0; i < 5; i++)
      expect((await run(commands, { shell: "greet you; echo $SEEN", env })).text).toBe(
        "hello you\nexported\n",
      );
    const other = program("other-env", "SEEN=other\n", 0o644);
    expect((await run(commands, { shell: "echo $SEEN", env: { BASH_ENV: other } })).text).toBe("other\n");
    expect((await run(commands, { shell: "echo [$SEEN]", env: { BASH_ENV: "/no/such" } })).text).toBe("[]\n");
  });

  test("the program is looked up in the command's PATH", async () => {
    program("my-tool", "#!/bin/sh\necho mine\n");
    expect((await run(commands, { argv: ["my-tool"], env: { PATH: `/nowhere:${folder}:/bin` } })).text).toBe(
      "mine\n",
    );
  });

  test("cwd, umask, nice and limits", async () => {
    const line = "pwd; umask; nice; ulimit -n; ulimit -Hn; ulimit -c";
    const request = { shell: line, cwd: folder, umask: 0o27, nice: 7, rlimits: { nofile: 77, core: 0 } };
    expect((await run(commands, request)).text).toBe(`${folder}\n0027\n7\n77\n77\n0\n`);
    expect((await run(commands, { argv: ["pwd"], cwd: "tmp" })).text).toBe("/tmp\n");
  });

  test("another user, with the image's groups and home", async () => {
    const end = await run(commands, {
      shell: "id -u; id -g; echo $HOME $USER; ulimit -n 1>&2",
      user: "daemon",
    });
    expect(end.text).toBe("1\n1\n/usr/sbin daemon\n");
    const numbers = await run(commands, { shell: "id -u; id -g; id -G", user: "1234:5678" });
    expect(numbers.text).toBe("1234\n5678\n5678\n");
  });
});

test("what commands say to the OOM killer of themselves is not said of the daemon, which would end before them", async () => {
  const own = (): string => readFileSync("/proc/self/oom_score_adj", "utf8");
  const before = own();
  expect(before).not.toBe("1000\n");
  const say = { argv: ["cat", "/proc/self/oom_score_adj"] };
  for (const end of [
    await run(commands, say),
    ...(await Promise.all([run(commands, say), run(commands, say)])),
  ])
    expect(end.text).toBe("1000\n");
  expect(own()).toBe(before);
});

test("commands that are stopped between fork and exec do not hold up the daemon", async () => {
  const stopper = begin(commands, {
    argv: ["python3", "-c", STOPPER, String(process.pid)],
    timeout_ms: 30_000,
    grace_ms: 0,
  });
  await stopper.until("up");
  const ends: string[] = [];
  for (let i = 0; i < 200; i++) {
    const { outcome } = await run(commands, { argv: ["true"], timeout_ms: 500, grace_ms: 0 });
    ends.push(outcome.type);
  }
  // At once they are the engine's thread's to begin, and not JavaScript's.
  const short = { argv: ["true"], timeout_ms: 500, grace_ms: 0 };
  const burst = await Promise.all(Array.from({ length: 50 }, () => run(commands, short)));
  ends.push(...burst.map(({ outcome }) => outcome.type));
  stopper.command.cancel();
  await stopper.ended;
  // One that was stopped just behind its exec stays so until its time is up, as is right.
  expect(ends.filter((type) => type !== "exited" && type !== "timed_out")).toEqual([]);
}, 60_000);

test("the longest time limit is waited for, and does not end the command at once", async () => {
  const ended = await run(commands, { shell: "sleep 0.1; echo end", timeout_ms: 2_592_000_000 });
  expect(ended.outcome).toEqual({ type: "exited", code: 0 });
});

test("1,000 commands at once: none lost, no zombie, no descriptor left", async () => {
  await run(commands, { argv: ["true"] });
  const before = readdirSync("/proc/self/fd").length;
  const ends = await Promise.all(
    Array.from({ length: 1000 }, (_, i) => run(commands, { argv: ["echo", String(i)] })),
  );
  expect(ends.map((end) => end.text)).toEqual(Array.from({ length: 1000 }, (_, i) => `${i}\n`));
  expect(readdirSync("/proc/self/fd").length).toBe(before);
  for (const end of ends) expect(readdirSync("/proc").includes(String(end.pid))).toBe(false);
}, 60_000);
