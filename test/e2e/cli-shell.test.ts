// The command line: shells, with a terminal and without.
import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { onOneMesh } from "./one-mesh.ts";
import { eventually, PROGRAM, PROGRAM_WORDS, ROOT, run } from "./program.ts";

const here = onOneMesh();

describe("shell", () => {
  test("is a terminal: window size, Ctrl-C, exit code", async () => {
    const id = await here.acquired();
    const script = join(ROOT, "test", "e2e", "type-into.py");
    const typed = await run(["python3", script, ...PROGRAM, "shell", id], {
      env: { SANDMESH_HOME: here.home },
    });
    expect({ code: typed.code, stdout: typed.stdout, stderr: typed.stderr }).toMatchObject({ code: 7 });
    expect(typed.stdout).toContain("size 31 101");
    expect(typed.stdout).toContain("after interrupt 130");
    await here.sandmesh("release", id);
  });

  test("that a second signal ends at once leaves the terminal as it was", async () => {
    const id = await here.acquired();
    const script = join(ROOT, "test", "e2e", "hang-up.py");
    const ended = await run(["python3", script, ...PROGRAM, "shell", id], {
      env: { SANDMESH_HOME: here.home },
    });
    expect(ended).toEqual({ code: 0, stdout: "", stderr: "" });
    await here.sandmesh("release", id);
  });
});

describe("shell of a client that was killed", () => {
  test("is hung up with what runs in it, and leaves nothing in the sandbox", async () => {
    const id = await here.acquired();
    const client = Bun.spawn([...PROGRAM, "shell", "--hang-up-after", "1s", id], {
      env: { ...process.env, SANDMESH_HOME: here.home },
      stdin: "pipe",
      stdout: "pipe",
      stderr: "ignore",
    });
    client.stdin.write("sleep 4711 & echo up$((1+1))\n");
    await client.stdin.flush();
    let seen = "";
    for await (const part of client.stdout) {
      seen += Buffer.from(part).toString();
      if (seen.includes("up2")) break;
    }
    client.kill("SIGKILL");
    await client.exited;
    await eventually("the shell is gone", async () => {
      const { stdout } = await here.sandmesh("--json", "logs", "--list", id);
      const commands: { running: boolean }[] = JSON.parse(stdout);
      return commands.every(({ running }) => !running);
    });
    expect((await here.sandmesh("exec", id, "--", "pgrep", "-x", "-c", "sleep|bash")).stdout).toBe("0\n");
    await here.sandmesh("release", id);
  });
});

describe("shell without a terminal", () => {
  test("and with an input that cannot be read: one line, 125, and nothing runs on", async () => {
    const id = await here.acquired();
    const line = `timeout 20 ${PROGRAM_WORDS} shell ${id} -- sleep 87 < /`;
    const ran = await run(["sh", "-c", line], { env: { SANDMESH_HOME: here.home } });
    expect(ran).toEqual({
      code: 125,
      stdout: "",
      stderr: expect.stringMatching(/^sandmesh: canceled: .+\n$/),
    });
    await eventually(
      "the end of what ran",
      async () => (await here.sandmesh("exec", id, "--", "pgrep", "-fx", "sleep 87")).code === 1,
    );
    await here.sandmesh("release", id);
  });

  test("ends where its input ends, also when that is at once, and needs no TERM", async () => {
    const id = await here.acquired();
    const nothing = await here.sandmeshWith({ env: { TERM: "" } }, "shell", id);
    expect({ code: nothing.code, stderr: nothing.stderr }).toEqual({ code: 0, stderr: "" });
    expect((await here.sandmeshWith({ stdin: "exit 4\n" }, "shell", id)).code).toBe(4);
    const missing = await here.sandmesh("shell", id, "no-such-program");
    expect([missing.code, missing.stderr]).toEqual([
      127,
      "sandmesh: the command was not started: there is no program no-such-program in PATH\n",
    ]);
    await here.sandmesh("release", id);
  });
});
