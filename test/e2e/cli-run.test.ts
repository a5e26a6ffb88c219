// The command line: run. Against a real mesh with real sandboxes.
import { describe, expect, test } from "bun:test";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { onOneMesh } from "./one-mesh.ts";
import { PROGRAM } from "./program.ts";

const here = onOneMesh();

describe("run", () => {
  test("the command's own exit code is the program's", async () => {
    for (const code of [0, 1, 125, 255]) {
      expect((await here.sandmesh("run", "host", "--", "sh", "-c", `exit ${code}`)).code).toBe(code);
    }
  });

  test("a failure of sandmesh is 125 with one line on stderr, and no outcome", async () => {
    const outcome = join(here.scratch, "none.json");
    const ran = await here.sandmesh("run", "--outcome", outcome, "/no/such/image", "--", "true");
    expect(ran.code).toBe(125);
    expect(ran.stderr).toMatch(/sandmesh.*image_error/);
    expect(await Bun.file(outcome).exists()).toBe(false);
  });

  test("a command's 125 and sandmesh's are told apart by --outcome", async () => {
    const outcome = join(here.scratch, "125.json");
    await here.sandmesh("run", "--outcome", outcome, "host", "--", "sh", "-c", "exit 125");
    expect(JSON.parse(await readFile(outcome, "utf8"))).toEqual({ type: "exited", code: 125 });
  });

  test("stdout and stderr stay apart, and their bytes as they are", async () => {
    const ran = await here.sandmesh("run", "host", "--", "sh", "-c", "printf 'a\\r\\nb'; printf 'e\\n' >&2");
    expect(ran.stdout).toBe("a\r\nb");
    expect(ran.stderr).toContain("e\n");
  });

  test("a signal is 128 + n, a time limit 124, a missing program 127", async () => {
    expect((await here.sandmesh("run", "host", "--", "sh", "-c", "kill -9 $$")).code).toBe(137);
    expect((await here.sandmesh("run", "--timeout", "300ms", "host", "--", "sleep", "60")).code).toBe(124);
    expect((await here.sandmesh("run", "host", "--", "no-such-program")).code).toBe(127);
    expect((await here.sandmesh("run", "host", "--", "")).stderr).toContain('no program "" in PATH');
  });

  test("stdin goes to the command, to its end", async () => {
    const ran = await here.sandmeshWith({ stdin: "one\ntwo" }, "run", "-i", "host", "--", "cat");
    expect(ran.stdout).toBe("one\ntwo");
  });

  test("all of a large output arrives", async () => {
    const ran = await here.sandmesh("run", "host", "--", "head", "-c", "20000000", "/dev/zero");
    expect([ran.code, ran.stdout.length]).toEqual([0, 20_000_000]);
  });

  test("a reader that goes away, as head does, is no crash; the command and the sandbox are ended", async () => {
    const ran = await here.line(`sandmesh run host -- yes | head -1; echo \${PIPESTATUS[0]}`);
    expect([ran.stdout, ran.stderr]).toEqual(["y\n141\n", ""]);
    expect((await here.sandmesh("ps", "--ids")).stdout.trim()).toBe("");
  });

  test("a full disk behind our output is a line on stderr and a failure, of every command; nothing is kept that could not be named", async () => {
    const id = await here.acquired();
    const commands = {
      1: [
        "help",
        "--version",
        "version",
        "config",
        "completion bash",
        "ps",
        "--json ps",
        "acquire host",
        "events",
      ],
      125: [
        "run host -- echo x",
        `exec -d ${id} -- sleep 600`,
        `--json exec ${id} -- echo x`,
        `shell ${id} echo x`,
      ],
    };
    for (const [code, lines] of Object.entries(commands))
      for (const line of lines) {
        const ran = await here.line(`sandmesh ${line} > /dev/full`);
        expect([line, ran.code, ran.stderr]).toEqual([
          line,
          Number(code),
          expect.stringMatching(/^sandmesh: file_error: stdout.*ENOSPC.*\n$/),
        ]);
      }
    expect((await here.sandmesh("ps", "--ids")).stdout.trim()).toBe(id);
    expect((await here.sandmesh("logs", "--list", id)).stdout).not.toContain("running");
    await here.sandmesh("release", id);
  });

  test("without a stdout nothing is kept that could not be named, where /dev/null is nobody's loss", async () => {
    const acquired = async (redirection: string) => {
      const ran = await here.line(`sandmesh acquire host ${redirection}`);
      const kept = (await here.sandmesh("ps", "--ids")).stdout.trim().split("\n").filter(Boolean);
      if (kept.length > 0) await here.sandmesh("release", ...kept);
      return { ...ran, kept: kept.length };
    };
    const closed = await acquired(">&-");
    expect(closed).toMatchObject({ code: 1, kept: 0 });
    expect(closed.stderr).toBe("sandmesh: file_error: stdout, on this machine: EBADF: it is closed\n");
    expect(await acquired("> /dev/null")).toMatchObject({ code: 0, kept: 1 });
    expect(await acquired("1<> /dev/null")).toMatchObject({ code: 0, kept: 1 });
  });

  test("--json is one line with outcome and output", async () => {
    const ran = await here.sandmesh("--json", "run", "host", "--", "echo", "x");
    expect(ran.stdout.trimEnd().split("\n").length).toBe(1);
    expect(JSON.parse(ran.stdout)).toMatchObject({
      outcome: { type: "exited", code: 0 },
      stdout: "x\n",
      stderr: "",
    });
    expect(JSON.parse(ran.stdout)).not.toHaveProperty("stdout_base64");
  });

  test("--json keeps bytes that are no UTF-8, in base64 beside the text", async () => {
    const ran = await here.sandmesh("--json", "run", "host", "--", "printf", "a\\377\\000");
    expect(JSON.parse(ran.stdout)).toMatchObject({ stdout: "a\ufffd\0", stdout_base64: "Yf8A", stderr: "" });
  });

  test.each(["SIGTERM", "SIGHUP"] as const)(
    "nothing is left of it, also where it was ended by %s",
    async (signal) => {
      const child = Bun.spawn([...PROGRAM, "run", "host", "--", "sh", "-c", "echo up; sleep 60"], {
        env: { ...process.env, SANDMESH_HOME: here.home },
        stdout: "pipe",
        stderr: "ignore",
      });
      const first = await child.stdout.getReader().read();
      expect(Buffer.from(first.value ?? []).toString()).toBe("up\n");
      child.kill(signal);
      expect(await child.exited).toBe(130);
      expect((await here.sandmesh("ps", "--ids")).stdout.trim()).toBe("");
    },
  );
});
