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
