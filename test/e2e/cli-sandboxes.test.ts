// The command line: sandboxes that are kept, what their commands wrote, and what happens to them.
import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { onOneMesh } from "./one-mesh.ts";
import { eventually, PROGRAM, ROOT } from "./program.ts";

const here = onOneMesh();

describe("a sandbox that is kept", () => {
  test("files and background processes live from one exec to the next", async () => {
    const id = await here.acquired();
    await here.sandmesh("exec", id, "--", "sh -c 'echo kept > /tmp/f; sleep 321 > /dev/null 2>&1 &'");
    expect((await here.sandmesh("exec", id, "--", "cat", "/tmp/f")).stdout).toBe("kept\n");
    expect((await here.sandmesh("exec", id, "--", "pgrep -f 'sleep 32[1]' | wc -l")).stdout.trim()).toBe("1");
    expect((await here.sandmesh("release", id)).stdout).toContain("released 1");
  });

  test("ps shows it until it is released, and release by run ends all of the run", async () => {
    const first = (await here.sandmesh("acquire", "--run", "cli-run", "host")).stdout.trim();
    const second = (await here.sandmesh("acquire", "--run", "cli-run", "host")).stdout.trim();
    const ids = (await here.sandmesh("ps", "--run", "cli-run", "--ids")).stdout.trim().split("\n");
    expect(ids.sort()).toEqual([first, second].sort());
    expect(JSON.parse((await here.sandmesh("--json", "renew", first, "--lease", "2h")).stdout)).toMatchObject(
      {
        run: "cli-run",
        sandboxes: 2,
      },
    );
    await here.sandmesh("release", "--run", "cli-run");
    expect((await here.sandmesh("ps", "--run", "cli-run", "--ids")).stdout.trim()).toBe("");
  });

  test("a nats context is written for what is there only", async () => {
    const config = join(here.scratch, "config");
    const ran = await here.sandmeshWith({ env: { XDG_CONFIG_HOME: config } }, "context", "foo");
    expect([ran.code, ran.stderr]).toEqual([3, "sandmesh: not_found: there is no sandbox foo\n"]);
    expect(await Bun.file(join(config, "nats", "context", "sandmesh-foo.json")).exists()).toBe(false);
  });

  test("a released or unknown sandbox is a typed error, in time", async () => {
    const ran = await here.sandmesh("exec", "sb-0000000000000", "--", "true");
    expect(ran.code).toBe(125);
    expect(ran.stderr).toBe("sandmesh: not_found: there is no sandbox sb-0000000000000\n");
    const id = await here.acquired();
    await here.sandmesh("release", id);
    const late = await here.sandmesh("logs", id);
    expect([late.code, late.stderr]).toEqual([
      3,
      `sandmesh: sandbox_lost: sandbox ${id} is not there any more (released)\n`,
    ]);
  });

  test("release of what never was is 3 and says so, and of what is gone already it is fine", async () => {
    const id = await here.acquired();
    expect((await here.sandmesh("release", id)).stdout).toBe("released 1\n");
    expect(await here.sandmesh("release", id)).toMatchObject({ code: 0, stdout: "released 0\n" });
    const other = await here.acquired();
    const ran = await here.sandmesh("release", "sb-0000000000000", other);
    expect([ran.code, ran.stderr]).toEqual([
      3,
      expect.stringContaining("not_found: there is no sandbox sb-0000000000000"),
    ]);
    expect((await here.sandmesh("ps", "--ids")).stdout).not.toContain(other);
  });

  test("of what is not there every command says so, with 3, or 125 where the code is a command's", async () => {
    const file = join(here.scratch, "x");
    const wrong: [code: number, ...words: string[]][] = [
      [3, "logs", "nosuch"],
      [3, "logs", "-l", "nosuch"],
      [3, "cp", "nosuch:/a", file],
      [3, "cp", import.meta.path, "nosuch:/a"],
      [3, "context", "nosuch"],
      [3, "release", "nosuch"],
      [125, "shell", "nosuch"],
    ];
    const ran = await Promise.all(
      wrong.map(async ([, ...words]) => {
        const { code, stderr } = await here.sandmesh(...words);
        return [words, code, stderr];
      }),
    );
    expect(ran).toEqual(
      wrong.map(([code, ...words]) => [words, code, "sandmesh: not_found: there is no sandbox nosuch\n"]),
    );
    expect((await here.sandmesh("renew", "nosuch")).code).toBe(3);
    const gone = (await here.sandmesh("acquire", "host")).stdout.trim();
    await here.sandmesh("release", gone);
    expect((await here.sandmesh("renew", gone)).stderr).toContain(`${gone} is not there any more (released)`);
  });

  test("drain is refused to users with words, and an operator drains, and takes that back", async () => {
    const refused = await here.sandmesh("--json", "drain", "--release-all");
    expect(refused.code).toBe(1);
    expect(JSON.parse(refused.stdout)).toMatchObject({
      error: { code: "permission_denied", reason: "publish" },
    });
    expect(refused.stderr).toContain("only an operator may drain the pool");
    const asOperator = ["drain", "--creds", join(here.home, "operator.creds")];
    expect((await here.sandmesh(...asOperator)).stdout).toMatch(/^draining, \d+ sandbox(es)? left\n$/);
    try {
      expect((await here.sandmesh("acquire", "host")).stderr).toContain("draining");
    } finally {
      expect(JSON.parse((await here.sandmesh("--json", ...asOperator, "--off")).stdout).draining).toBe(false);
    }
    await here.acquired();
  });

  test("a run that never was is 3, what is no id is wrong usage, and limits are told by the option", async () => {
    const run = await here.sandmesh("release", "--run", "nosuch");
    expect([run.code, run.stderr]).toEqual([3, "sandmesh: not_found: there is no run nosuch\n"]);
    const context = await here.sandmesh("context", "a*");
    expect([context.code, context.stderr]).toEqual([
      2,
      expect.stringContaining("sandmesh: invalid_request: "),
    ]);
    for (const [option, value, least] of [
      ["--lease", "0", "1s"],
      ["--memory", "1k", "16m"],
      ["--disk", "1k", "1m"],
      ["--pids", "0", "16"],
    ] as const) {
      const ran = await here.sandmesh("acquire", option, value, "host");
      expect([ran.code, ran.stderr]).toEqual([2, expect.stringContaining(option)]);
      expect(ran.stderr).toContain(`must be at least ${least}`);
    }
  });

  test("release counts a sandbox once, whether it is named twice or is one of the named run", async () => {
    const [one, two, three, four] = await Promise.all(
      ["cli-once", "cli-once", "cli-other", "cli-other"].map(async (run) =>
        (await here.sandmesh("acquire", "--run", run, "host")).stdout.trim(),
      ),
    );
    const refused = await here.sandmesh("release", "--all", "--run", "cli-once");
    expect([refused.code, refused.stdout]).toEqual([2, ""]);
    const ids = (await here.sandmesh("--json", "ps", "--ids")).stdout;
    expect(JSON.parse(ids)).toEqual(expect.arrayContaining([one, two, three, four]));
    const words = [one, one, three, "--run", "cli-once"].map(String);
    const ran = await here.sandmesh("--json", "release", ...words);
    expect(JSON.parse(ran.stdout)).toEqual({
      released: 3,
      results: [
        { sandbox: three, released: 1 },
        { run: "cli-once", released: 2 },
      ],
    });
    expect((await here.sandmesh("release", `${four}`, `${four}`)).stdout).toBe("released 1\n");
  });

  test("release --json tells of each what became of it, also where one never was", async () => {
    const id = await here.acquired();
    const ran = await here.sandmesh("release", "--json", id, "nosuch");
    expect([ran.code, JSON.parse(ran.stdout)]).toMatchObject([
      3,
      {
        released: 1,
        results: [
          { sandbox: id, released: 1 },
          { sandbox: "nosuch", released: 0, error: { code: "not_found" } },
        ],
      },
    ]);
  });

  test("acquire -n answers that many, an id a line, of one run; with --json a list", async () => {
    const ran = await here.sandmesh("acquire", "-n", "3", "--run", "many", "host");
    const ids = ran.stdout.trimEnd().split("\n");
    expect([ran.code, new Set(ids).size]).toEqual([0, 3]);
    expect(JSON.parse((await here.sandmesh("--json", "ps", "--run", "many")).stdout)).toHaveLength(3);
    const json = JSON.parse(
      (await here.sandmesh("acquire", "--json", "-n", "1", "--run", "many", "host")).stdout,
    );
    expect(json).toMatchObject([{ sandbox: expect.stringMatching(/^sb-/), run: "many" }]);
    await here.sandmesh("release", "--run", "many");
  });

  test("a name of a registry is told from a path that is not there, and what is possible here", async () => {
    const named = await here.sandmesh("run", "debian:bookworm", "true");
    expect(named.stderr).toMatch(
      /names of a registry are for the Kubernetes provider.*Here it may be `host`/,
    );
    const path = await here.sandmesh("run", "./no-such-rootfs", "true");
    expect(path.stderr).toContain(`image ${join(ROOT, "no-such-rootfs")}: no such file or folder`);
  });

  test("a time limit of 0, never to some and at once to others, is refused; what ended otherwise is told in a sentence", async () => {
    const id = await here.acquired();
    for (const words of [
      ["exec", "-t", "0", id, "true"],
      ["run", "--wait", "0ms", "host", "true"],
    ]) {
      const refused = await here.sandmesh(...words);
      expect([refused.code, refused.stderr]).toEqual([125, expect.stringContaining("must be above 0")]);
    }
    const missing = await here.sandmesh("exec", id, "no-such-program");
    expect(missing.stderr).toMatch(/^sandmesh: the command was not started: /);
    const killed = await here.sandmesh("exec", id, "sh", "-c", "kill -9 $$");
    expect(killed.stderr).toBe("sandmesh: the command was ended by SIGKILL\n");
    await here.sandmesh("release", id);
  });

  test("a command's own options are not taken for exec's or sandmesh's", async () => {
    const id = await here.acquired();
    const ran = await here.sandmesh("exec", id, "printf", "%s,", "-e", "--json", "-q", "--url", "--", "-d");
    expect(ran).toMatchObject({ code: 0, stdout: "-e,--json,-q,--url,--,-d," });
    await here.sandmesh("release", id);
  });

  test("env, user and folder of an exec hold for it alone", async () => {
    const id = await here.acquired();
    const where = await here.sandmesh(
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
    expect((await here.sandmesh("exec", id, "--", 'echo "[$A]" $(id -un)')).stdout).toBe("[] root\n");
    await here.sandmesh("release", id);
  });

  test("a session keeps its shell's state", async () => {
    const id = await here.acquired();
    await here.sandmesh("exec", "-s", "main", id, "--", "cd /var; X=1; f() { echo in $PWD $X; }");
    expect((await here.sandmesh("exec", "-s", "main", id, "--", "f")).stdout).toBe("in /var 1\n");
    await here.sandmesh("release", id);
  });

  test("a session's line of several words is those words, and one word is the line", async () => {
    const id = await here.acquired();
    const inSession = async (...words: string[]) => {
      const { code, stdout } = await here.sandmesh("exec", "-s", "main", id, "--", ...words);
      return { code, stdout };
    };
    expect(await inSession("sh", "-c", "echo one; echo two")).toEqual({ code: 0, stdout: "one\ntwo\n" });
    const words = ["a  b", "$HOME", "it's", "", "*", "x;exit 9", "a\nb"];
    const stdout = words.map((word) => `<${word}>`).join("");
    expect(await inSession("printf", "<%s>", ...words)).toEqual({ code: 0, stdout });
    await inSession("alias greet='echo hello'; f() { echo \"[$#:$*]\"; }; A=b");
    expect(await inSession("greet", "a  b")).toEqual({ code: 0, stdout: "hello a  b\n" });
    expect(await inSession("f", "a  b", "c")).toEqual({ code: 0, stdout: "[2:a  b c]\n" });
    expect(await inSession("echo $A; false")).toEqual({ code: 1, stdout: "b\n" });
    expect(await inSession("f")).toEqual({ code: 0, stdout: "[0:]\n" });
    await here.sandmesh("release", id);
  });

  test("one word with white space is a line for the shell, of every command that runs one", async () => {
    const id = await here.acquired();
    const line = "echo a  $((1+1)); exit 5";
    for (const words of [
      ["shell", id],
      ["shell", "-w", "/usr", id],
      ["exec", id],
      ["exec", "-t", "30s", id],
      ["exec", "-i", id],
      ["run", "-t", "30s", "host"],
    ]) {
      const ran = await here.sandmeshWith({ stdin: "" }, ...words, "--", line);
      expect([words[0], ran.code, ran.stdout.trim()]).toEqual([words[0], 5, "a 2"]);
    }
    const detached = (await here.sandmesh("exec", "-d", id, "--", line)).stdout.trim();
    expect((await here.sandmesh("logs", "-f", id, detached)).stdout).toBe("a 2\n");
    await here.sandmesh("release", id);
  });

  test.each(["SIGINT", "SIGTERM"] as const)(
    "with --json a command that %s ends is told as canceled, with what it wrote until then",
    async (signal) => {
      const id = await here.acquired();
      const outcome = join(here.scratch, `${signal}.json`);
      const line = "echo so far; touch /tmp/written; sleep 600";
      const child = Bun.spawn([...PROGRAM, "--json", "exec", "--outcome", outcome, id, "--", line], {
        env: { ...process.env, SANDMESH_HOME: here.home },
        stdio: ["ignore", "pipe", "pipe"],
        timeout: 30_000,
      });
      await eventually(
        "it has written",
        async () => (await here.sandmesh("exec", id, "--", "test -e /tmp/written")).code === 0,
      );
      child.kill(signal);
      const [stdout, stderr] = await Promise.all([
        new Response(child.stdout).text(),
        new Response(child.stderr).text(),
      ]);
      expect([await child.exited, stderr]).toEqual([130, ""]);
      const told = { sandbox: id, outcome: { type: "canceled" }, stdout: "so far\n", stderr: "" };
      expect(JSON.parse(stdout)).toMatchObject(told);
      expect(JSON.parse(await Bun.file(outcome).text())).toMatchObject({ type: "canceled" });
      expect((await here.sandmesh("logs", "-l", id)).stdout).not.toContain("running");
      await here.sandmesh("release", id);
    },
  );

  test("a detached command's output is there afterwards, and can be followed", async () => {
    const id = await here.acquired();
    const command = (
      await here.sandmesh("exec", "-d", id, "--", "echo early; sleep 0.3; echo late")
    ).stdout.trim();
    expect((await here.sandmesh("logs", "-f", id, command)).stdout).toBe("early\nlate\n");
    expect((await here.sandmesh("logs", id)).stdout).toBe("early\nlate\n");
    expect(JSON.parse((await here.sandmesh("--json", "logs", id)).stdout)).toMatchObject({
      id: command,
      outcome: { type: "exited", code: 0 },
      stdout: "early\nlate\n",
    });
    await here.sandmesh("exec", id, "--", "echo", "newest");
    expect((await here.sandmesh("logs", id)).stdout).toBe("newest\n");
    expect((await here.sandmesh("logs", "-l", id)).stdout).toContain("exited 0");
    await here.sandmesh("release", id);
  });
});

describe("a command that never ran", () => {
  test("is told by exec --detach and by logs, and needs a place for its outcome before it runs", async () => {
    const id = await here.acquired();
    const detached = await here.sandmesh("exec", "-d", id, "--", "no-such-program");
    expect(detached.code).toBe(127);
    expect(detached.stderr).toContain("no program no-such-program");
    await here.sandmesh("exec", "-s", "main", "-e", "A.B=1", id, "--", "true");
    expect((await here.sandmesh("logs", "-l", id)).stdout).toMatch(/refused or lost .*true\n/);
    for (const file of [join(here.scratch, "no-such-folder", "outcome"), ""]) {
      const ran = await here.sandmesh("exec", "--outcome", file, id, "--", "touch", "/tmp/it-ran");
      expect(ran.code).toBe(125);
      expect(ran.stderr).toMatch(/file_error|must name a file/);
    }
    expect((await here.sandmesh("exec", id, "--", "ls /tmp/it-ran")).code).toBe(2);
    const nobodys = await here.sandmesh("events", "--sandbox", "NO ID");
    expect([nobodys.code, nobodys.stderr]).toEqual([2, expect.stringContaining("sandbox: must be")]);
    await here.sandmesh("release", id);
  });
});

describe("logs of a command that runs", () => {
  test("all that it has written so far, as text and as JSON, and no waiting for more", async () => {
    const id = await here.acquired();
    const line = "seq 1 300000; printf '\\377' >&2; touch /tmp/written; sleep 600";
    const command = (await here.sandmesh("exec", "-d", id, "--", line)).stdout.trim();
    await eventually(
      "it has written",
      async () => (await here.sandmesh("exec", id, "--", "test -e /tmp/written")).code === 0,
    );
    const text = await here.sandmesh("logs", id, command);
    expect([text.code, text.stdout.endsWith("\n300000\n")]).toEqual([0, true]);
    const json = JSON.parse((await here.sandmesh("--json", "logs", id, command)).stdout);
    expect(json).toMatchObject({ id: command, running: true, stdout: text.stdout, stderr_base64: "/w==" });
    const cut = await here.line(`sandmesh logs ${id} ${command} | head -1; echo \${PIPESTATUS[0]}`);
    expect([cut.stdout, cut.stderr]).toEqual(["1\n141\n", ""]);
    await here.sandmesh("release", id);
  });
});

describe("events", () => {
  test("a sandbox's life comes as lines, of the kinds that are asked for, until Ctrl-C", async () => {
    const watch = (...flags: string[]) =>
      Bun.spawn([...PROGRAM, "events", "--run", "watched", ...flags], {
        env: { ...process.env, SANDMESH_HOME: here.home },
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
      id = (await here.sandmesh("acquire", "--run", "watched", "host")).stdout.trim();
      await here.sandmesh("release", id);
      // Who began to watch in between has heard of its end alone.
      const [first, second] = outputs.map((output) => output.text);
      return /"leased".*"released"/s.test(first ?? "") && new RegExp(`granted +${id}`).test(second ?? "");
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
