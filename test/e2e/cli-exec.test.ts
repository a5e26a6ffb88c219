// The command line: commands in a sandbox that is kept, and what they wrote.
import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { onOneMesh } from "./one-mesh.ts";
import { eventually, PROGRAM } from "./program.ts";

const here = onOneMesh();

describe("exec", () => {
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
