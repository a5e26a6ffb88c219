import { afterEach, expect, test } from "bun:test";
import { SessionClosedError } from "../../broker/contract/index.ts";
import { closeSessions, inEachShell, isAlive, run, testSessions, untilGone, untilRuns } from "./testing.ts";

afterEach(closeSessions);

inEachShell(
  "folder, variables, exports, functions, aliases, options, traps and arguments live on",
  async (s, shell) => {
    expect((await run(s, "cd /usr && plain=one && export SHOWN=two && set -- a 'b c'")).what).toBe(
      "exited 0",
    );
    expect(
      (await run(s, 'greet() { echo "hello $1"; return 7; }\nalias shout="echo LOUD"\numask 027')).what,
    ).toBe("exited 0");
    const seen = await run(
      s,
      'pwd; echo "$plain"; env | grep ^SHOWN=; echo "$# $2"; umask; shout; greet you',
    );
    expect(seen.stdout.replace("0027", "027")).toBe("/usr\none\nSHOWN=two\n2 b c\n027\nLOUD\nhello you\n");
    expect(seen.what).toBe("exited 7");
    await run(s, shell === "zsh" ? "setopt noglob" : "set -f");
    expect((await run(s, "echo /*")).stdout).toBe("/*\n");
    await run(s, "trap 'echo goodbye' EXIT");
    const last = await run(s, "exit 3");
    expect([last.what, last.stdout]).toEqual(["exited 3", "goodbye\n"]);
  },
);

inEachShell("the last status is there for the next command", async (s) => {
  expect((await run(s, "(exit 42)")).what).toBe("exited 42");
  expect((await run(s, 'echo "$?"')).stdout).toBe("42\n");
  expect((await run(s, 'echo "$?"')).stdout).toBe("0\n");
});

inEachShell("a background job lives on, does not delay the answer, and can be waited for", async (s) => {
  const started = await run(s, "sleep 60 & echo $!");
  const pid = Number(started.stdout);
  await untilRuns(pid, "sleep");
  expect(started.what).toBe("exited 0");
  expect(started.stderr).toBe("");
  expect(isAlive(pid)).toBe(true);
  expect((await run(s, "kill -TERM $!; wait $!")).what).toBe("exited 143");
  await untilGone(pid);
});

inEachShell(
  "a background job is reached by `%%` and by the number that `jobs` tells",
  async (s, shell) => {
    for (const way of ["%%", "number"]) {
      const pid = Number((await run(s, "sleep 60 & echo $!")).stdout);
      await untilRuns(pid, "sleep");
      const number = /^\[(\d+)\]/m.exec((await run(s, "jobs")).stdout)?.[1];
      // In zsh what a command runs in has numbers, too, and the lowest.
      if (shell !== "zsh") expect(number).toBe("1");
      await run(s, `kill ${way === "number" ? `%${number}` : way}; wait`);
      await untilGone(pid);
    }
  },
  // dash takes each job for a process group, which it has none of without job control, and says that there is no such process.
  ["bash", "busybox", "zsh"],
);

inEachShell("commands of many lines, here-documents, quotes and 100 KB come through unchanged", async (s) => {
  const here = await run(
    s,
    "cat <<'END'\n$HOME `x` \"q\" 'q' \\ é 漢\nEND\nif true\nthen\n  echo \"after\"\nfi",
  );
  expect(here.stdout).toBe("$HOME `x` \"q\" 'q' \\ é 漢\nafter\n");
  const long = "y".repeat(100_000);
  expect((await run(s, `printf %s '${long}'`)).stdout).toBe(long);
  expect((await run(s, "")).what).toBe("exited 0");
  expect((await run(s, "  \n\n# only a comment")).what).toBe("exited 0");
  expect((await run(s, "echo one; echo two # three\n\n")).stdout).toBe("one\ntwo\n");
});

inEachShell(
  "blank lines, CR LF and U+2028 in a command, and in its stdin, arrive as they were given",
  async (s) => {
    const odd = "\n\nfirst\r\n\n\u2028second\u2029\u0085\n\n  last";
    const same = Buffer.from(odd);
    expect((await run(s, `printf %s '${odd}'`)).bytes).toEqual(same);
    expect((await run(s, `\n\ncat <<'END'\n${odd}\nEND\n\n`)).stdout).toBe(`${odd}\n`);
    expect((await run(s, "cat", { stdin: same })).bytes).toEqual(same);
  },
);

const UNFINISHED = [
  "echo 'open",
  'echo "open',
  "echo `open",
  "echo a; cat <<END\nto the end",
  "cat <<-'A B'\n\tA  B",
  "echo $" + "{open",
];
/** zsh says of these what it says of any error. */
const UNFINISHED_BUT_IN_ZSH = [
  "echo $(open",
  "if true; then",
  "for i in 1; do",
  "f() {",
  "echo a |",
  "cat <<E | (\nx\nE",
];

inEachShell(
  "a command that ends in the middle is an error of its own, nothing of it runs, and the session lives",
  async (s, shell) => {
    await run(s, "kept=yes; (exit 5)");
    for (const text of [...UNFINISHED, ...(shell === "zsh" ? [] : UNFINISHED_BUT_IN_ZSH)]) {
      const error = await run(s, `echo NEVER > /dev/full\n${text}`).catch((thrown: unknown) => thrown);
      expect([text, error]).toMatchObject([text, { code: "incomplete_command", started: "no" }]);
      expect((await run(s, "echo $kept")).stdout).toBe("yes\n");
    }
  },
);

inEachShell("what only looks as if it ended in the middle runs", async (s) => {
  const whole: [text: string, stdout: string][] = [
    ["echo it\\'s # don't", "it's\n"],
    ["echo \"don't\" '\"' '('", "don't \" (\n"],
    ["cat <<END # it's\n$((1 << 2)) ( { ' \"\nEND", "4 ( { ' \"\n"],
    ["cat <<'A B' && echo if do case\n`\nA B", "`\nif do case\n"],
    ["echo $((1 <<3))", "8\n"],
    ["cat <<A; cat <<-B\none\nA\n\ttwo\n\tB", "one\ntwo\n"],
    ["case x in x) echo yes;; esac", "yes\n"],
  ];
  for (const [text, stdout] of whole) {
    const ended = await run(s, text);
    expect([text, ended.what, ended.stdout]).toEqual([text, "exited 0", stdout]);
  }
});

inEachShell("a command that the shell cannot parse says so, and the session lives", async (s) => {
  await run(s, "kept=yes");
  for (const broken of ["fi", "echo )", "if then", "echo a; }"]) {
    const { outcome, stderr, stdout } = await run(s, broken);
    expect(outcome.type).toBe("exited");
    expect(outcome).not.toEqual({ type: "exited", code: 0 });
    expect([broken, stderr.length > 0, stdout]).toEqual([broken, true, ""]);
    expect((await run(s, "echo $kept")).stdout).toBe("yes\n");
  }
});

inEachShell("an error that ends a script does not end the session", async (s, shell) => {
  // zsh leaves for that, however interactive it is.
  const missing = shell === "zsh" ? [] : ["set +u; echo $" + "{nothing:?is missing}"];
  for (const wrong of [
    ...missing,
    "set -u; echo $nothing",
    ". /nonexistent",
    "shift 99",
    "readonly r=1; r=2",
    "return 3",
    "break",
    "unset -f x; no-such-command",
  ]) {
    expect((await run(s, wrong)).outcome.type).toBe("exited");
    expect((await run(s, "set +u; echo alive")).stdout).toBe("alive\n");
  }
});

inEachShell("exit, exec, set -e and a killed shell end the session, as what they are", async (s, shell) => {
  const ends: [string, object][] = [
    ["exit 200", { type: "exited", code: 200 }],
    ["set -e; false; echo not-reached", { type: "exited", code: 1 }],
    ["exec sh -c 'echo replaced; exit 9'", { type: "exited", code: 9 }],
    ["kill -KILL $$", { type: "signaled", signal: "SIGKILL", core_dumped: false }],
  ];
  for (const [command, outcome] of ends) {
    const ended = await run(s, command);
    expect(ended.outcome).toEqual(outcome as never);
    expect(ended.stdout).not.toContain("not-reached");
    expect(() => s.exec({ shell: "echo", session: "s" } as never, {} as never)).toThrow(
      "its shell has exited",
    );
    expect(s.list()).toEqual([]);
    await s.open({ session: "s", shell });
    expect((await run(s, "echo anew")).stdout).toBe("anew\n");
  }
});

inEachShell(
  "nothing but the command's own output is told: no banner, prompt, job notice or echo",
  async (s) => {
    const first = await run(s, "true");
    expect([first.stdout, first.stderr]).toEqual(["", ""]);
    await run(s, "PS1='(venv) $ '; PS2='more> '");
    for (const command of ["echo a", "sleep 0.01 &", "wait", "(sleep 0.01 &)\n:", "x=$(echo y)", "false"]) {
      const { stdout, stderr } = await run(s, command);
      expect([command, stdout, stderr]).toEqual([command, command === "echo a" ? "a\n" : "", ""]);
    }
  },
);

inEachShell("a folder or variables given with a command are for that command only", async (s) => {
  await run(s, "cd /usr; kept=1; export Q=old DROPPED=x");
  const apart = await run(s, 'pwd; echo "$Q-$DROPPED-$V"; cd /; kept=2; exit 5', {
    cwd: "/tmp",
    env: { Q: "it's new", DROPPED: null, V: "a\nb" },
  });
  expect([apart.what, apart.stdout]).toEqual(["exited 5", "/tmp\nit's new--a\nb\n"]);
  expect((await run(s, "pwd; echo $kept $Q $DROPPED")).stdout).toBe("/usr\n1 old x\n");
  expect((await run(s, "pwd", { cwd: "bin" })).stdout).toMatch(/^\/(usr\/)?bin\n$/);
  expect((await run(s, "pwd", { cwd: "/no/where" })).outcome).toMatchObject({
    type: "not_started",
    reason: "no_such_cwd",
  });
  expect((await run(s, "echo still")).stdout).toBe("still\n");
});

inEachShell("traces of set -x show the command, and the session lives with them", async (s) => {
  await run(s, "set -x");
  const traced = await run(s, "echo traced");
  expect(traced.stdout).toBe("traced\n");
  expect(traced.stderr).toContain("echo traced");
  expect(traced.stderr).not.toMatch(/[0-9a-f]{24}/);
  await run(s, "set +x");
  expect((await run(s, "echo quiet")).stderr).toBe("");
});

inEachShell(
  "a limit of descriptors that a command sets adds nothing to its output, and the session lives",
  async (s) => {
    const ran = await run(s, "ulimit -n 64; echo set");
    expect([ran.what, ran.stdout, ran.stderr]).toEqual(["exited 0", "set\n", ""]);
    const next = await run(s, "echo on; cat < /dev/null");
    expect([next.what, next.stdout, next.stderr]).toEqual(["exited 0", "on\n", ""]);
  },
);

inEachShell(
  "with a limit of descriptors that no shell can live with the session lives or ends typed",
  async (s) => {
    const ran = await run(s, "ulimit -n 4; echo set").catch((error: unknown) => error);
    if (ran instanceof SessionClosedError) return;
    expect(ran).toMatchObject({ stdout: "set\n", stderr: "" });
  },
);

test("what a command writes where the shell reports ends no command and hides no report", async () => {
  const s = await testSessions();
  await s.open({ session: "s", shell: "bash" });
  expect((await run(s, "printf 'no line' >&199; (exit 5)")).what).toBe("exited 5");
  expect((await run(s, "echo on")).stdout).toBe("on\n");
});
