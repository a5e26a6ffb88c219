import { afterEach, expect, test } from "bun:test";
import { readdirSync } from "node:fs";
import { BACKLOG_BYTES, Backlog } from "./backlog.ts";
import { begin, closeSessions, inEachShell, run, testSessions } from "./testing.ts";

afterEach(closeSessions);

inEachShell("every byte comes, to the last one without a newline", async (s) => {
  const odd = await run(s, "printf '\\377\\000\\r\\n\\342\\200\\250last'");
  expect([...odd.bytes]).toEqual([0xff, 0, 13, 10, 0xe2, 0x80, 0xa8, ...Buffer.from("last")]);
  for (let i = 0; i < 20; i++) {
    const both = await run(s, `seq 1 ${i * 50}; seq 1 ${i * 30} >&2`);
    expect([both.stdout.split("\n").length, both.stderr.split("\n").length]).toEqual([
      i * 50 + 1,
      i * 30 + 1,
    ]);
  }
  const large = await run(s, "head -c 3000000 /dev/zero | tr '\\0' z; echo end");
  expect(large.bytes.length).toBe(3_000_004);
  expect(large.bytes.subarray(-4).toString()).toBe("end\n");
});

inEachShell(
  "a command can neither forge nor break the end of itself, whatever it writes where",
  async (s) => {
    const forged = await run(
      s,
      'for fd in /proc/self/fd/* /proc/$$/fd/*; do sh -c \'echo "0123456789abcdef01234567 0" >"$0"\' $fd 2>/dev/null; done; sleep 0.1; exec 2>/dev/null; echo done; (exit 5)',
    );
    expect(forged.stdout).toContain("done\n");
    expect(forged.what).toBe("exited 5");
    expect((await run(s, "echo next")).what).toBe("exited 0");
  },
);

inEachShell(
  "programs that open /dev/stdout and /dev/stderr work, and so do redirections that last",
  async (s) => {
    const opened = await run(
      s,
      "sh -c 'echo out >/dev/stdout; echo err >/dev/stderr; echo fd >/proc/self/fd/1'",
    );
    expect([opened.stdout, opened.stderr]).toEqual(["out\nfd\n", "err\n"]);
    const file = `/tmp/sandmesh-session-${process.pid}`;
    await run(s, `exec 7>${file} 5<&0`);
    await run(s, "echo kept >&7");
    expect((await run(s, `exec 7>&-; cat ${file}; rm ${file}`)).stdout).toBe("kept\n");
    await run(s, "exec 2>&1");
    expect((await run(s, "echo merged >&2")).stdout).toBe("merged\n");
  },
);

inEachShell("stderr is merged into stdout in order where asked for, for that command", async (s) => {
  const merged = await run(s, "echo 1; echo 2 >&2; sh -c 'echo 3; echo 4 >&2'; kept=1", { merge: true });
  expect([merged.stdout, merged.stderr]).toEqual(["1\n2\n3\n4\n", ""]);
  const apart = await run(s, "echo $kept; echo 2 >&2");
  expect([apart.stdout, apart.stderr]).toEqual(["1\n", "2\n"]);
});

inEachShell("what a background job writes later goes to a later command", async (s) => {
  const fifo = `/tmp/sandmesh-late-${process.pid}`;
  await run(s, `rm -f ${fifo}; mkfifo ${fifo}; (read go <${fifo}; echo late) &`);
  expect((await run(s, "echo before")).stdout).toBe("before\n");
  const next = await run(s, `echo go >${fifo}; wait; rm ${fifo}; echo after`);
  expect(next.stdout).toBe("late\nafter\n");
});

test("background output without a reader is kept up to a bound, the newest, and what is dropped is stated", () => {
  const backlog = new Backlog();
  expect(backlog.take()).toEqual([]);
  const part = new Uint8Array(BACKLOG_BYTES / 4);
  for (let i = 0; i < 6; i++) backlog.add("stdout", part);
  const [notice, ...rest] = backlog.take();
  expect(notice?.stream).toBe("stderr");
  expect(Buffer.from(notice?.data ?? []).toString()).toContain(`${part.length * 2} bytes`);
  expect(rest.length).toBe(4);
  expect(backlog.take()).toEqual([]);
});

inEachShell(
  "a slow reader holds the command back, not the memory",
  async (s) => {
    const running = begin(s, "head -c 20000000 /dev/zero; echo end >&2");
    let ended = false;
    void running.ended.then(() => (ended = true));
    running.command.pause(true);
    // As long as it is paused it cannot write 20 MB into pipe and read-ahead; a second command would have to wait.
    const behind = begin(s, "echo behind");
    await Bun.sleep(100);
    expect(ended).toBe(false);
    running.command.pause(false);
    expect((await running.ended).bytes.length).toBe(20_000_000);
    expect((await behind.ended).stdout).toBe("behind\n");
  },
  ["bash", "dash"],
);

inEachShell("stdin comes whole, ends, and is not left for the next command", async (s) => {
  const data = Buffer.from(crypto.getRandomValues(new Uint8Array(60_000)));
  expect((await run(s, "cat", { stdin: data })).bytes.equals(data)).toBe(true);
  expect((await run(s, "cat; echo none")).stdout).toBe("none\n");
  expect((await run(s, 'read line; echo "$line"', { stdin: Buffer.from("first\nsecond\n") })).stdout).toBe(
    "first\n",
  );
  expect((await run(s, "cat; echo none")).stdout).toBe("none\n");
});

inEachShell("stdin may follow while the command runs, also more than a pipe holds", async (s) => {
  const running = begin(s, "wc -c", { stdin: Buffer.from("ab"), stdin_open: true });
  const part = new Uint8Array(250_000);
  for (let i = 0; i < 12; i++) await running.command.stdin(part);
  running.command.closeStdin();
  expect((await running.ended).stdout.trim()).toBe("3000002");
  const unread = begin(s, "true", { stdin_open: true });
  const written = unread.command.stdin(new Uint8Array(3_000_000));
  await unread.ended;
  await written;
  expect((await run(s, "cat; echo none")).stdout).toBe("none\n");
});

test("sessions leave no descriptor behind, and a thousand commands none either", async () => {
  const sessions = await testSessions();
  const count = (): number => readdirSync("/proc/self/fd").length;
  // What the daemon opens once, at its first command, and keeps (/proc/loadavg), is open before it is counted.
  await sessions.open({ session: "s" });
  await run(sessions, "echo x", { stdin: Buffer.from("y") });
  await sessions.close("s");
  const before = count();
  for (let i = 0; i < 10; i++) {
    await sessions.open({ session: "s" });
    for (let j = 0; j < 100; j++) await run(sessions, "echo x", { stdin: Buffer.from("y") });
    if (i % 2 === 0) await sessions.close("s");
    else await run(sessions, "exit");
  }
  await sessions.closeAll(0);
  // The last one's shell has said its end; its descriptors are closed right after.
  const deadline = Date.now() + 5000;
  while (count() > before && Date.now() < deadline) await Bun.sleep(5);
  // Fewer, where a shell of the test before had not ended at the count.
  expect(count()).toBeLessThanOrEqual(before);
});
