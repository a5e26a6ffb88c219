// The command line, against a real mesh with real sandboxes.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdir, mkdtemp, readFile, readlink, rm, stat, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { eventually, type LocalMesh, localMesh, ROOT, run } from "./program.ts";

let mesh: LocalMesh;
let scratch: string;
beforeAll(async () => {
  mesh = await localMesh();
  scratch = await mkdtemp(join(tmpdir(), "sandmesh-cli-"));
});
afterAll(async () => {
  await mesh[Symbol.asyncDispose]();
  await rm(scratch, { recursive: true, force: true });
});

async function acquired(): Promise<string> {
  const { stdout, code, stderr } = await mesh.sandmesh("acquire", "host");
  expect({ code, stderr }).toMatchObject({ code: 0 });
  return stdout.trim();
}

describe("run", () => {
  test("the command's own exit code is the program's", async () => {
    for (const code of [0, 1, 125, 255]) {
      expect((await mesh.sandmesh("run", "host", "--", "sh", "-c", `exit ${code}`)).code).toBe(code);
    }
  });

  test("a failure of sandmesh is 125 with one line on stderr, and no outcome", async () => {
    const outcome = join(scratch, "none.json");
    const ran = await mesh.sandmesh("run", "--outcome", outcome, "/no/such/image", "--", "true");
    expect(ran.code).toBe(125);
    expect(ran.stderr).toMatch(/sandmesh.*image_error/);
    expect(await Bun.file(outcome).exists()).toBe(false);
  });

  test("a command's 125 and sandmesh's are told apart by --outcome", async () => {
    const outcome = join(scratch, "125.json");
    await mesh.sandmesh("run", "--outcome", outcome, "host", "--", "sh", "-c", "exit 125");
    expect(JSON.parse(await readFile(outcome, "utf8"))).toEqual({ type: "exited", code: 125 });
  });

  test("stdout and stderr stay apart, and their bytes as they are", async () => {
    const ran = await mesh.sandmesh("run", "host", "--", "sh", "-c", "printf 'a\\r\\nb'; printf 'e\\n' >&2");
    expect(ran.stdout).toBe("a\r\nb");
    expect(ran.stderr).toContain("e\n");
  });

  test("a signal is 128 + n, a time limit 124, a missing program 127", async () => {
    expect((await mesh.sandmesh("run", "host", "--", "sh", "-c", "kill -9 $$")).code).toBe(137);
    expect((await mesh.sandmesh("run", "--timeout", "300ms", "host", "--", "sleep", "60")).code).toBe(124);
    expect((await mesh.sandmesh("run", "host", "--", "no-such-program")).code).toBe(127);
  });

  test("stdin goes to the command, to its end", async () => {
    const ran = await mesh.sandmeshWith({ stdin: "one\ntwo" }, "run", "-i", "host", "--", "cat");
    expect(ran.stdout).toBe("one\ntwo");
  });

  test("all of a large output arrives", async () => {
    const ran = await mesh.sandmesh("run", "host", "--", "head", "-c", "20000000", "/dev/zero");
    expect([ran.code, ran.stdout.length]).toEqual([0, 20_000_000]);
  });

  test("a reader that goes away, as head does, is no crash; the command and the sandbox are ended", async () => {
    const program = `"${process.execPath}" "${join(ROOT, "deploy", "sandmesh.ts")}"`;
    const ran = await run(["bash", "-c", `${program} run host -- yes | head -1; echo \${PIPESTATUS[0]}`], {
      env: { SANDMESH_HOME: mesh.home },
    });
    expect([ran.stdout, ran.stderr]).toEqual(["y\n141\n", ""]);
    expect((await mesh.sandmesh("ps", "--ids")).stdout.trim()).toBe("");
  });

  test("a full disk behind our output is told in one line, and the sandbox is released", async () => {
    const program = `"${process.execPath}" "${join(ROOT, "deploy", "sandmesh.ts")}"`;
    const ran = await run(["bash", "-c", `${program} run host -- echo x > /dev/full`], {
      env: { SANDMESH_HOME: mesh.home },
    });
    expect(ran.code).toBe(125);
    expect(ran.stderr).toMatch(/^sandmesh: .*ENOSPC.*\n$/);
    expect((await mesh.sandmesh("ps", "--ids")).stdout.trim()).toBe("");
  });

  test("--json is one line with outcome and output", async () => {
    const ran = await mesh.sandmesh("--json", "run", "host", "--", "echo", "x");
    expect(ran.stdout.trimEnd().split("\n").length).toBe(1);
    expect(JSON.parse(ran.stdout)).toMatchObject({
      outcome: { type: "exited", code: 0 },
      stdout: "x\n",
      stderr: "",
    });
    expect(JSON.parse(ran.stdout)).not.toHaveProperty("stdout_base64");
  });

  test("--json keeps bytes that are no UTF-8, in base64 beside the text", async () => {
    const ran = await mesh.sandmesh("--json", "run", "host", "--", "printf", "a\\377\\000");
    expect(JSON.parse(ran.stdout)).toMatchObject({ stdout: "a\ufffd\0", stdout_base64: "Yf8A", stderr: "" });
  });

  test.each(["SIGTERM", "SIGHUP"] as const)(
    "nothing is left of it, also where it was ended by %s",
    async (signal) => {
      const child = Bun.spawn(
        [
          process.execPath,
          join(ROOT, "deploy", "sandmesh.ts"),
          "run",
          "host",
          "--",
          "sh",
          "-c",
          "echo up; sleep 60",
        ],
        { env: { ...process.env, SANDMESH_HOME: mesh.home }, stdout: "pipe", stderr: "ignore" },
      );
      const first = await child.stdout.getReader().read();
      expect(Buffer.from(first.value ?? []).toString()).toBe("up\n");
      child.kill(signal);
      expect(await child.exited).toBe(130);
      expect((await mesh.sandmesh("ps", "--ids")).stdout.trim()).toBe("");
    },
  );
});

describe("a sandbox that is kept", () => {
  test("files and background processes live from one exec to the next", async () => {
    const id = await acquired();
    await mesh.sandmesh("exec", id, "--", "sh -c 'echo kept > /tmp/f; sleep 321 > /dev/null 2>&1 &'");
    expect((await mesh.sandmesh("exec", id, "--", "cat", "/tmp/f")).stdout).toBe("kept\n");
    expect((await mesh.sandmesh("exec", id, "--", "pgrep -f 'sleep 32[1]' | wc -l")).stdout.trim()).toBe("1");
    expect((await mesh.sandmesh("release", id)).stdout).toContain("released 1");
  });

  test("ps shows it until it is released, and release by run ends all of the run", async () => {
    const first = (await mesh.sandmesh("acquire", "--run-id", "cli-run", "host")).stdout.trim();
    const second = (await mesh.sandmesh("acquire", "--run-id", "cli-run", "host")).stdout.trim();
    const ids = (await mesh.sandmesh("ps", "--run", "cli-run", "--ids")).stdout.trim().split("\n");
    expect(ids.sort()).toEqual([first, second].sort());
    expect(JSON.parse((await mesh.sandmesh("--json", "renew", first, "--lease", "2h")).stdout)).toMatchObject(
      {
        run: "cli-run",
        sandboxes: 2,
      },
    );
    await mesh.sandmesh("release", "--run", "cli-run");
    expect((await mesh.sandmesh("ps", "--run", "cli-run", "--ids")).stdout.trim()).toBe("");
  });

  test("a nats context is written for what is there only", async () => {
    const config = join(scratch, "config");
    const ran = await mesh.sandmeshWith({ env: { XDG_CONFIG_HOME: config } }, "context", "foo");
    expect([ran.code, ran.stderr]).toEqual([3, "sandmesh: not_found: there is no sandbox foo\n"]);
    expect(await Bun.file(join(config, "nats", "context", "sandmesh-foo.json")).exists()).toBe(false);
  });

  test("a released or unknown sandbox is a typed error, in time", async () => {
    const ran = await mesh.sandmesh("exec", "sb-0000000000000", "--", "true");
    expect(ran.code).toBe(125);
    expect(ran.stderr).toMatch(/sandmesh.*(not_found|unreachable|sandbox_lost)/);
  });

  test("release of what never was is 3 and says so, and of what is gone already it is fine", async () => {
    const id = await acquired();
    expect((await mesh.sandmesh("release", id)).stdout).toBe("released 1\n");
    expect(await mesh.sandmesh("release", id)).toMatchObject({ code: 0, stdout: "released 0\n" });
    const other = await acquired();
    const ran = await mesh.sandmesh("release", "sb-0000000000000", other);
    expect([ran.code, ran.stderr]).toEqual([
      3,
      expect.stringContaining("not_found: there is no sandbox sb-0000000000000"),
    ]);
    expect((await mesh.sandmesh("ps", "--ids")).stdout).not.toContain(other);
  });

  test("a time limit of 0 is none, and what ended otherwise is told in a sentence", async () => {
    const id = await acquired();
    expect((await mesh.sandmesh("exec", "-t", "0", id, "sleep", "0.2")).code).toBe(0);
    const missing = await mesh.sandmesh("exec", id, "no-such-program");
    expect(missing.stderr).toMatch(/^sandmesh: the command was not started: /);
    const killed = await mesh.sandmesh("exec", id, "sh", "-c", "kill -9 $$");
    expect(killed.stderr).toBe("sandmesh: the command was ended by SIGKILL\n");
    await mesh.sandmesh("release", id);
  });

  test("a command's own options are not taken for exec's or sandmesh's", async () => {
    const id = await acquired();
    const ran = await mesh.sandmesh("exec", id, "printf", "%s,", "-e", "--json", "-q", "--url", "--", "-d");
    expect(ran).toMatchObject({ code: 0, stdout: "-e,--json,-q,--url,--,-d," });
    await mesh.sandmesh("release", id);
  });

  test("env, user and folder of an exec hold for it alone", async () => {
    const id = await acquired();
    const where = await mesh.sandmesh(
      "exec",
      "-e",
      "A=b c",
      "-w",
      "/usr",
      "-u",
      "nobody",
      id,
      "--",
      "echo $A $PWD $(id -un)",
    );
    expect(where.stdout).toBe("b c /usr nobody\n");
    expect((await mesh.sandmesh("exec", id, "--", 'echo "[$A]" $(id -un)')).stdout).toBe("[] root\n");
    await mesh.sandmesh("release", id);
  });

  test("a session keeps its shell's state", async () => {
    const id = await acquired();
    await mesh.sandmesh("exec", "-s", "main", id, "--", "cd /var; X=1; f() { echo in $PWD $X; }");
    expect((await mesh.sandmesh("exec", "-s", "main", id, "--", "f")).stdout).toBe("in /var 1\n");
    await mesh.sandmesh("release", id);
  });

  test("a detached command's output is there afterwards, and can be followed", async () => {
    const id = await acquired();
    const command = (
      await mesh.sandmesh("exec", "-d", id, "--", "echo early; sleep 0.3; echo late")
    ).stdout.trim();
    expect((await mesh.sandmesh("logs", "-f", id, command)).stdout).toBe("early\nlate\n");
    expect((await mesh.sandmesh("logs", id)).stdout).toBe("early\nlate\n");
    expect(JSON.parse((await mesh.sandmesh("--json", "logs", id)).stdout)).toMatchObject({
      id: command,
      outcome: { type: "exited", code: 0 },
      stdout: "early\nlate\n",
    });
    await mesh.sandmesh("exec", id, "--", "echo", "newest");
    expect((await mesh.sandmesh("logs", id)).stdout).toBe("newest\n");
    expect((await mesh.sandmesh("logs", "-l", id)).stdout).toContain("exited 0");
    await mesh.sandmesh("release", id);
  });
});

describe("logs of a command that runs", () => {
  test("all that it has written so far, as text and as JSON, and no waiting for more", async () => {
    const id = await acquired();
    const line = "seq 1 300000; printf '\\377' >&2; touch /tmp/written; sleep 600";
    const command = (await mesh.sandmesh("exec", "-d", id, "--", line)).stdout.trim();
    await eventually(
      "it has written",
      async () => (await mesh.sandmesh("exec", id, "--", "test -e /tmp/written")).code === 0,
    );
    const text = await mesh.sandmesh("logs", id, command);
    expect([text.code, text.stdout.endsWith("\n300000\n")]).toEqual([0, true]);
    const json = JSON.parse((await mesh.sandmesh("--json", "logs", id, command)).stdout);
    expect(json).toMatchObject({ id: command, running: true, stdout: text.stdout, stderr_base64: "/w==" });
    const program = `"${process.execPath}" "${join(ROOT, "deploy", "sandmesh.ts")}"`;
    const cut = await run(
      ["bash", "-c", `${program} logs ${id} ${command} | head -1; echo \${PIPESTATUS[0]}`],
      {
        env: { SANDMESH_HOME: mesh.home },
      },
    );
    expect([cut.stdout, cut.stderr]).toEqual(["1\n141\n", ""]);
    await mesh.sandmesh("release", id);
  });
});

describe("events", () => {
  test("a sandbox's life comes as lines, of the kinds that are asked for, until Ctrl-C", async () => {
    const program = [process.execPath, join(ROOT, "deploy", "sandmesh.ts")];
    const watch = (...flags: string[]) =>
      Bun.spawn([...program, "events", "--run", "watched", ...flags], {
        env: { ...process.env, SANDMESH_HOME: mesh.home },
        stdout: "pipe",
        stderr: "pipe",
      });
    const [json, text] = [watch("--json", "--what", "leased", "released"), watch()];
    const outputs = [json, text].map((child) => {
      const output = { text: "" };
      void (async () => {
        for await (const part of child.stdout) output.text += Buffer.from(part).toString();
      })();
      return output;
    });
    let id = "";
    await eventually("both have told of one", async () => {
      id = (await mesh.sandmesh("acquire", "--run-id", "watched", "host")).stdout.trim();
      await mesh.sandmesh("release", id);
      return outputs.every((output) => output.text.includes(id));
    });
    for (const child of [json, text]) child.kill("SIGINT");
    expect(await Promise.all([json.exited, text.exited])).toEqual([0, 0]);
    const lines =
      outputs[0]?.text
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line)) ?? [];
    expect(new Set(lines.map(({ what }) => what))).toEqual(new Set(["leased", "released"]));
    expect(lines.every(({ run }) => run === "watched")).toBe(true);
    expect(outputs[1]?.text).toMatch(
      new RegExp(`^\\d\\d:\\d\\d:\\d\\d\\.\\d{3}  granted +${id}  watched`, "m"),
    );
    expect(await new Response(text.stderr).text()).toBe("");
  });
});

describe("cp", () => {
  test("a folder comes back as it went: sub-folders, modes, symlinks", async () => {
    const id = await acquired();
    const there = join(scratch, "there");
    const back = join(scratch, "back");
    await mkdir(join(there, "a", "b"), { recursive: true });
    await writeFile(join(there, "a", "b", "run.sh"), "#!/bin/sh\n", { mode: 0o755 });
    await writeFile(join(there, "big"), Buffer.alloc(3_000_000, "x"));
    await symlink("a/b/run.sh", join(there, "link"));
    expect((await mesh.sandmesh("cp", there, `${id}:/work/tree`)).code).toBe(0);
    expect((await mesh.sandmesh("cp", `${id}:/work/tree`, back)).code).toBe(0);
    expect((await stat(join(back, "a", "b", "run.sh"))).mode & 0o777).toBe(0o755);
    expect((await stat(join(back, "big"))).size).toBe(3_000_000);
    expect(await readlink(join(back, "link"))).toBe("a/b/run.sh");
    await mesh.sandmesh("release", id);
  });

  test("a file copied to a folder lands in it", async () => {
    const id = await acquired();
    const file = join(scratch, "note.txt");
    await writeFile(file, "n");
    await mesh.sandmesh("cp", file, `${id}:/tmp`);
    expect((await mesh.sandmesh("exec", id, "--", "cat", "/tmp/note.txt")).stdout).toBe("n");
    const missing = await mesh.sandmesh("cp", `${id}:/no/such/file`, scratch);
    expect({ code: missing.code, stderr: missing.stderr }).toMatchObject({ code: 1 });
    expect(missing.stderr).toContain("file_error");
    await mesh.sandmesh("release", id);
  });
});

describe("cp of folders", () => {
  test("lands in a folder that is there, both ways; DIR/. merges; what is left out is named", async () => {
    const id = await acquired();
    const project = join(scratch, "project");
    await mkdir(project);
    await writeFile(join(project, "file"), "x");
    const odd = Buffer.concat([Buffer.from(`${project}/odd`), Buffer.from([0xff])]);
    await writeFile(odd, "bytes");
    Bun.spawnSync(["mkfifo", join(project, "pipe")]);
    const up = await mesh.sandmesh("cp", project, `${id}:/tmp`);
    expect({ code: up.code, stderr: up.stderr }).toEqual({
      code: 0,
      stderr: `sandmesh: warning: left out ${project}/pipe: neither file, folder nor symlink\n`,
    });
    await mesh.sandmesh("cp", `${project}/.`, `${id}:/tmp/merged`);
    await mesh.sandmesh("cp", `${project}/.`, `${id}:/tmp/merged`);
    const listed = await mesh.sandmesh("exec", id, "--", "cd /tmp; find project merged -type f | wc -l");
    expect(listed.stdout).toBe("4\n");
    const back = join(scratch, "back-in");
    await mkdir(back);
    expect((await mesh.sandmesh("cp", `${id}:/tmp/project`, back)).code).toBe(0);
    const oddBack = Buffer.concat([Buffer.from(`${back}/project/odd`), Buffer.from([0xff])]);
    expect(await readFile(oddBack, "utf8")).toBe("bytes");
    await mesh.sandmesh("release", id);
  });
});

describe("shell", () => {
  test("is a terminal: window size, Ctrl-C, exit code", async () => {
    const id = await acquired();
    const script = join(ROOT, "test", "e2e", "type-into.py");
    const typed = await run(
      ["python3", script, process.execPath, join(ROOT, "deploy", "sandmesh.ts"), "shell", id],
      { env: { SANDMESH_HOME: mesh.home } },
    );
    expect({ code: typed.code, stdout: typed.stdout, stderr: typed.stderr }).toMatchObject({ code: 7 });
    expect(typed.stdout).toContain("size 31 101");
    expect(typed.stdout).toContain("after interrupt 130");
    await mesh.sandmesh("release", id);
  });
});

describe("shell without a terminal", () => {
  test("ends where its input ends, also when that is at once, and needs no TERM", async () => {
    const id = await acquired();
    const nothing = await mesh.sandmeshWith({ env: { TERM: "" } }, "shell", id);
    expect({ code: nothing.code, stderr: nothing.stderr }).toEqual({ code: 0, stderr: "" });
    expect((await mesh.sandmeshWith({ stdin: "exit 4\n" }, "shell", id)).code).toBe(4);
    await mesh.sandmesh("release", id);
  });
});

describe("usage", () => {
  test("wrong usage is 2, help is 0", async () => {
    expect((await mesh.sandmesh("exec")).code).toBe(2);
    expect((await mesh.sandmesh("no-such-command")).code).toBe(2);
    expect((await mesh.sandmesh("run", "--cpu", "x", "host", "--", "true")).code).toBe(2);
    const help = await mesh.sandmesh("help", "run");
    expect(help.code).toBe(0);
    expect(help.stdout).toContain("Exit code");
  });

  test("without a mesh the error says what to do", async () => {
    const ran = await mesh.sandmeshWith({ env: { SANDMESH_HOME: join(scratch, "empty") } }, "ps");
    expect(ran.code).toBe(1);
    expect(ran.stderr).toContain("sandmesh up");
  });

  test("bash completes commands, options and sandboxes", async () => {
    const id = await acquired();
    const wrapper = join(scratch, "sandmesh");
    await writeFile(
      wrapper,
      `#!/bin/sh\nexec "${process.execPath}" "${join(ROOT, "deploy", "sandmesh.ts")}" "$@"\n`,
      { mode: 0o755 },
    );
    const complete = async (...words: string[]) => {
      const line = words.map((word) => `'${word}'`).join(" ");
      const script = `eval "$(sandmesh completion bash)"; COMP_WORDS=(sandmesh ${line}); COMP_CWORD=${words.length}; _sandmesh; printf '%s\\n' "\${COMPREPLY[@]}"`;
      const ran = await run(["bash", "-c", script], {
        env: { SANDMESH_HOME: mesh.home, PATH: `${scratch}:${process.env.PATH}` },
      });
      return ran.stdout.trim().split("\n");
    };
    expect(await complete("rel")).toEqual(["release"]);
    expect(await complete("exec", "--det")).toEqual(["--detach"]);
    expect(await complete("exec", "sb-")).toContain(id);
    expect(await complete("--url", "nats://x", "rele")).toEqual(["release"]);
    expect(await complete("exec", "-e", "A=1", "sb-")).toContain(id);
    expect(await complete("ps", "--js")).toEqual(["--json"]);
    const zsh = `autoload -Uz compinit; compinit -u -d ${scratch}/dump; eval "$(sandmesh completion zsh)"
      compadd() { shift; print -l -- "$@"; }; _files() { print files; }
      words=(sandmesh exec ''); CURRENT=3; _sandmesh; words=(sandmesh cp ./); CURRENT=3; _sandmesh`;
    const inZsh = await run(["zsh", "-fc", zsh], {
      env: { SANDMESH_HOME: mesh.home, PATH: `${scratch}:${process.env.PATH}` },
    });
    expect({ lines: inZsh.stdout.trim().split("\n"), stderr: inZsh.stderr }).toEqual({
      lines: expect.arrayContaining([id, "files"]),
      stderr: "",
    });
    await mesh.sandmesh("release", id);
  });

  test("--json stands before or behind the command", async () => {
    expect(JSON.parse((await mesh.sandmesh("ps", "--json")).stdout)).toBeArray();
    expect(JSON.parse((await mesh.sandmesh("--json", "ps")).stdout)).toBeArray();
  });

  test("doctor answers where no mesh ever was", async () => {
    const ran = await mesh.sandmeshWith({ env: { SANDMESH_HOME: join(scratch, "never-up") } }, "doctor");
    expect({ code: ran.code, stderr: ran.stderr }).toEqual({ code: 0, stderr: "" });
  });

  test("doctor, config and version answer, also as JSON", async () => {
    expect((await mesh.sandmesh("doctor")).code).toBe(0);
    const settings = JSON.parse((await mesh.sandmesh("--json", "config")).stdout);
    expect(settings.settings.length).toBeGreaterThan(10);
    expect(settings.settings.every((setting: { about: string }) => setting.about !== "")).toBe(true);
    expect(JSON.parse((await mesh.sandmesh("--json", "version")).stdout).sandmesh).toMatch(/^\d+\.\d+\.\d+$/);
  });
});
