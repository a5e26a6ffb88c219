// The command line: files and terminals.
import { describe, expect, test } from "bun:test";
import { mkdir, readFile, readlink, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { onOneMesh } from "./one-mesh.ts";
import { ROOT, run } from "./program.ts";

const here = onOneMesh();

describe("cp", () => {
  test("a folder comes back as it went: sub-folders, modes, symlinks", async () => {
    const id = await here.acquired();
    const there = join(here.scratch, "there");
    const back = join(here.scratch, "back");
    await mkdir(join(there, "a", "b"), { recursive: true });
    await writeFile(join(there, "a", "b", "run.sh"), "#!/bin/sh\n", { mode: 0o755 });
    await writeFile(join(there, "big"), Buffer.alloc(3_000_000, "x"));
    await symlink("a/b/run.sh", join(there, "link"));
    expect((await here.sandmesh("cp", there, `${id}:/work/tree`)).code).toBe(0);
    expect((await here.sandmesh("cp", `${id}:/work/tree`, back)).code).toBe(0);
    expect((await stat(join(back, "a", "b", "run.sh"))).mode & 0o777).toBe(0o755);
    expect((await stat(join(back, "big"))).size).toBe(3_000_000);
    expect(await readlink(join(back, "link"))).toBe("a/b/run.sh");
    await here.sandmesh("release", id);
  });

  test("a file copied to a folder lands in it", async () => {
    const id = await here.acquired();
    const file = join(here.scratch, "note.txt");
    await writeFile(file, "n");
    await here.sandmesh("cp", file, `${id}:/tmp`);
    expect((await here.sandmesh("exec", id, "--", "cat", "/tmp/note.txt")).stdout).toBe("n");
    const missing = await here.sandmesh("cp", `${id}:/no/such/file`, here.scratch);
    expect({ code: missing.code, stderr: missing.stderr }).toMatchObject({ code: 1 });
    expect(missing.stderr).toContain("file_error");
    await here.sandmesh("release", id);
  });
});

describe("cp of folders", () => {
  test("lands in a folder that is there, both ways; DIR/. merges; what is left out is named", async () => {
    const id = await here.acquired();
    const project = join(here.scratch, "project");
    await mkdir(project);
    await writeFile(join(project, "file"), "x");
    const odd = Buffer.concat([Buffer.from(`${project}/odd`), Buffer.from([0xff])]);
    await writeFile(odd, "bytes");
    Bun.spawnSync(["mkfifo", join(project, "pipe")]);
    const up = await here.sandmesh("cp", project, `${id}:/tmp`);
    expect({ code: up.code, stderr: up.stderr }).toEqual({
      code: 0,
      stderr: `sandmesh: warning: left out ${project}/pipe: neither file, folder nor symlink\n`,
    });
    await here.sandmesh("cp", `${project}/.`, `${id}:/tmp/merged`);
    await here.sandmesh("cp", `${project}/.`, `${id}:/tmp/merged`);
    const listed = await here.sandmesh("exec", id, "--", "cd /tmp; find project merged -type f | wc -l");
    expect(listed.stdout).toBe("4\n");
    const back = join(here.scratch, "back-in");
    await mkdir(back);
    expect((await here.sandmesh("cp", `${id}:/tmp/project`, back)).code).toBe(0);
    const oddBack = Buffer.concat([Buffer.from(`${back}/project/odd`), Buffer.from([0xff])]);
    expect(await readFile(oddBack, "utf8")).toBe("bytes");
    await here.sandmesh("release", id);
  });
});

describe("shell", () => {
  test("is a terminal: window size, Ctrl-C, exit code", async () => {
    const id = await here.acquired();
    const script = join(ROOT, "test", "e2e", "type-into.py");
    const typed = await run(
      ["python3", script, process.execPath, join(ROOT, "deploy", "sandmesh.ts"), "shell", id],
      { env: { SANDMESH_HOME: here.home } },
    );
    expect({ code: typed.code, stdout: typed.stdout, stderr: typed.stderr }).toMatchObject({ code: 7 });
    expect(typed.stdout).toContain("size 31 101");
    expect(typed.stdout).toContain("after interrupt 130");
    await here.sandmesh("release", id);
  });
});

describe("shell without a terminal", () => {
  test("ends where its input ends, also when that is at once, and needs no TERM", async () => {
    const id = await here.acquired();
    const nothing = await here.sandmeshWith({ env: { TERM: "" } }, "shell", id);
    expect({ code: nothing.code, stderr: nothing.stderr }).toEqual({ code: 0, stderr: "" });
    expect((await here.sandmeshWith({ stdin: "exit 4\n" }, "shell", id)).code).toBe(4);
    await here.sandmesh("release", id);
  });
});
