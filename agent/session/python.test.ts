import { afterEach, expect } from "bun:test";
import { begin, closeSessions, inEachShell, run } from "./testing.ts";

afterEach(closeSessions);

const python = (name: string, act: Parameters<typeof inEachShell>[1]): void =>
  inEachShell(name, act, ["python3"]);

python("names, imports and the last expression work as at the prompt", async (s) => {
  expect((await run(s, "import os\nx = [1, 2]\ndef f(a):\n    return a * 2")).stdout).toBe("");
  expect((await run(s, "print('é')\nf(len(x))")).stdout).toBe("é\n4\n");
  expect((await run(s, "_ + 1")).stdout).toBe("5\n");
  expect((await run(s, "None")).stdout).toBe("");
  expect((await run(s, "for i in range(2):\n    print(i)")).stdout).toBe("0\n1\n");
  expect((await run(s, "'_driver' in globals(), __name__")).stdout).toBe("(False, '__main__')\n");
  expect((await run(s, "import sys\nprint('to err', file=sys.stderr)", { merge: true })).stdout).toBe(
    "to err\n",
  );
});

python("an error shows the command's own traceback, and the session lives", async (s) => {
  await run(s, "kept = 1");
  const failed = await run(s, "def g():\n    return 1 / 0\ng()");
  expect(failed.what).toBe("exited 1");
  expect(failed.stderr).toContain("ZeroDivisionError");
  expect(failed.stderr).toContain("return 1 / 0");
  expect(failed.stderr).not.toContain("_driver");
  const broken = await run(s, "print('open");
  expect([broken.what, broken.stderr.includes("SyntaxError")]).toEqual(["exited 1", true]);
  expect((await run(s, "kept")).stdout).toBe("1\n");
});

python(
  "U+2028 and a form feed in a text end no line of it: its traceback shows the right ones",
  async (s) => {
    const odd = "\u2028, \u0085 and \f";
    const failed = await run(s, `x = '${odd}'\r\n\r\ny = len(x)\r\nraise ValueError(y)`);
    expect(failed.stderr).toContain("line 4, in <module>\n    raise ValueError(y)\n");
    expect((await run(s, "print(x, end='')")).stdout).toBe(odd);
    expect((await run(s, "input(); input()", { stdin: Buffer.from("\n\u2028\r\n") })).stdout).toBe(
      "'\\u2028\\r'\n",
    );
  },
);

python("a time-out interrupts it, and the session lives", async (s) => {
  const ended = await run(s, "import time\nprint('so far')\ntime.sleep(60)\nprint('NEVER')", {
    timeout_ms: 300,
  });
  expect([ended.what, ended.stdout]).toEqual(["timed_out", "so far\n"]);
  expect(ended.stderr).toContain("KeyboardInterrupt");
  expect((await run(s, "time.__name__")).stdout).toBe("'time'\n");
  const child = await run(s, "import subprocess\nsubprocess.run(['sleep', '60'])", { timeout_ms: 300 });
  expect(child.what).toBe("timed_out");
  expect((await run(s, "1")).stdout).toBe("1\n");
});

python("input comes from stdin, and exit ends the session with its code", async (s) => {
  expect((await run(s, "a = input()\nb = input()\n(b, a)", { stdin: Buffer.from("x\ny\n") })).stdout).toBe(
    "('y', 'x')\n",
  );
  const none = await run(s, "input()");
  expect([none.what, none.stderr.includes("EOFError")]).toEqual(["exited 1", true]);
  expect((await run(s, "import sys\nsys.exit(7)")).outcome).toEqual({ type: "exited", code: 7 });
  expect(() => begin(s, "1")).toThrow("its shell has exited");
});

python("what a command leaves of its stdin is not read by the next, whichever way it reads", async (s) => {
  const more = (text: string) => ({ stdin: Buffer.from(text) });
  const shown = async (text: string, stdin: string) => (await run(s, text, more(stdin))).stdout;
  for (let i = 0; i < 2; i++) {
    expect(await shown("input()", "one\ntwo\nthree\n")).toBe("'one'\n");
    expect(await shown("input()", "mine\n")).toBe("'mine'\n");
    expect(await shown("import sys; sys.stdin.read()", "")).toBe("''\n");
    expect(await shown("import sys; sys.stdin.buffer.readline()", "one\ntwo\n")).toBe("b'one\\n'\n");
  }
  expect(await shown("from sys import stdin; stdin.readline()", "one\ntwo\n")).toBe("'one\\n'\n");
  expect(await shown("(stdin.readline(), stdin.read())", "mine\nall\n")).toBe("('mine\\n', 'all\\n')\n");
  // What has been decoded ends within a character.
  await run(s, "sys.stdin.reconfigure(errors='strict')");
  for (const before of ["", "x", "xx"])
    expect(await shown("input()", `${before}\n${"\u20ac".repeat(400_000)}`)).toBe(`'${before}'\n`);
  expect(await shown("input()", "mine\n")).toBe("'mine'\n");
  expect(await shown("import io; sys.stdin = io.TextIOWrapper(sys.stdin.buffer); input()", "1\n2\n")).toBe(
    "'1'\n",
  );
  expect(await shown("input()", "mine\n")).toBe("'mine'\n");
  expect(await shown("sys.stdin = io.StringIO('a\\nb\\n'); input()", "1\n")).toBe("'a'\n");
  expect(await shown("input()", "2\n")).toBe("'b'\n");
});

python("a command that closed its stdin, or put another in its place, closed its own only", async (s) => {
  const shown = async (text: string, stdin: string) =>
    (await run(s, `import os, sys\n${text}`, { stdin: Buffer.from(stdin) })).stdout;
  const closes = [
    "open(0).read()",
    "with sys.stdin: sys.stdin.read()",
    "os.close(0)",
    "os.dup2(os.open('/dev/null', 0), 0)",
  ];
  for (const text of closes) {
    await shown(text, "one\ntwo\n");
    expect([text, await shown("input()", "mine\n")]).toEqual([text, "'mine'\n"]);
    expect([text, await shown("open(0, closefd=False).read()", "all")]).toEqual([text, "'all'\n"]);
  }
});
