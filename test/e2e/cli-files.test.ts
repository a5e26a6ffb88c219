// The command line: files.
import { describe, expect, test } from "bun:test";
import {
  chmod,
  mkdir,
  readdir,
  readFile,
  readlink,
  stat,
  symlink,
  utimes,
  writeFile,
} from "node:fs/promises";
import { join } from "node:path";
import { onOneMesh } from "./one-mesh.ts";
import { eventually, PROGRAM, run } from "./program.ts";

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

test("with --root nothing is copied that a link leads out of it to, either way", async () => {
  const id = await here.acquired();
  const [file, got] = [join(here.scratch, "mine"), join(here.scratch, "got")];
  await writeFile(file, "mine");
  await here.sandmesh("exec", id, "--", "mkdir -p /tmp/w/sub; echo in > /tmp/w/sub/f; ln -s /tmp /tmp/w/up");
  for (const [from, to] of [
    [`${id}:up/w/sub/f`, got],
    [`${id}:up/.`, got],
    [`${id}:/tmp/w/sub/f`, got],
    [file, `${id}:up/x`],
    [file, `${id}:../x`],
  ] as const) {
    const refused = await here.sandmesh("cp", "--root", "/tmp/w", from, to);
    expect({ from, to, code: refused.code }).toEqual({ from, to, code: 1 });
    expect(refused.stderr).toContain("leads out of the root /tmp/w");
  }
  expect((await here.sandmesh("cp", "--root", "/tmp/w", file, `${id}:sub`)).code).toBe(0);
  expect((await here.sandmesh("cp", "--root", "/tmp/w", `${id}:sub`, got)).code).toBe(0);
  expect([await readFile(join(got, "f"), "utf8"), await readFile(join(got, "mine"), "utf8")]).toEqual([
    "in\n",
    "mine",
  ]);
  await here.sandmesh("release", id);
});

test("holes are copied as holes, both ways", async () => {
  const id = await here.acquired();
  const [big, back] = [join(here.scratch, "holes"), join(here.scratch, "holes-back")];
  Bun.spawnSync(["truncate", "-s", "2G", big]);
  expect((await here.sandmesh("cp", big, `${id}:/tmp/holes`)).code).toBe(0);
  expect((await here.sandmesh("exec", id, "--", "stat -c '%s %b' /tmp/holes")).stdout).toBe("2147483648 0\n");
  expect((await here.sandmesh("cp", `${id}:/tmp/holes`, back)).code).toBe(0);
  const { size, blocks } = await stat(back);
  expect([size, blocks]).toEqual([2 ** 31, 0]);
  await here.sandmesh("release", id);
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

describe("cp of names, links and times", () => {
  test("a symlink that is named itself stays one, also where it leads nowhere; with -L and LINK/. what it leads to is copied", async () => {
    const id = await here.acquired();
    const from = join(here.scratch, "links");
    await mkdir(join(from, "dir"), { recursive: true });
    await writeFile(join(from, "dir", "file"), "x");
    await symlink("nowhere", join(from, "dangling"));
    await symlink("dir", join(from, "linked"));
    const up = async (...words: string[]) => {
      const ran = await here.sandmesh("cp", ...words);
      expect([words, ran.code, ran.stderr]).toEqual([words, 0, ""]);
    };
    await up(join(from, "dangling"), `${id}:/tmp/l/dangling`);
    await up(join(from, "linked"), `${id}:/tmp/l`);
    await up("-L", join(from, "linked"), `${id}:/tmp/l/followed`);
    await up(`${join(from, "linked")}/.`, `${id}:/tmp/l/content`);
    const looked = await here.sandmesh(
      "exec",
      id,
      "--",
      "cd /tmp/l; readlink dangling linked; cat followed/file content/file",
    );
    expect(looked.stdout).toBe("nowhere\ndir\nxx");

    const back = join(here.scratch, "links-back");
    await mkdir(back);
    await up(`${id}:/tmp/l/dangling`, back);
    await up(`${id}:/tmp/l/linked`, join(back, "renamed"));
    await here.sandmesh("exec", id, "--", "ln -s content /tmp/l/linked2");
    await up("-L", `${id}:/tmp/l/linked2`, join(back, "followed"));
    expect(await readlink(join(back, "dangling"))).toBe("nowhere");
    expect(await readlink(join(back, "renamed"))).toBe("dir");
    expect(await readFile(join(back, "followed", "file"), "utf8")).toBe("x");
    expect((await here.sandmesh("cp", "-L", join(from, "dangling"), `${id}:/tmp`)).stderr).toContain(
      "ENOENT",
    );
    await here.sandmesh("release", id);
  });

  test("times to the microsecond, and mode and time of the folder itself, come back; a folder that was there keeps its own", async () => {
    const id = await here.acquired();
    const from = join(here.scratch, "timed");
    const back = join(here.scratch, "timed-back");
    await mkdir(from, { mode: 0o700 });
    await writeFile(join(from, "file"), "x");
    const seconds = 1_577_934_245.123456;
    for (const path of [join(from, "file"), from]) await utimes(path, seconds, seconds);
    const micros = async (path: string) => Math.round((await stat(path)).mtimeMs * 1000);
    expect((await here.sandmesh("cp", from, `${id}:/tmp/timed`)).code).toBe(0);
    expect((await here.sandmesh("cp", join(from, "file"), `${id}:/tmp/alone`)).code).toBe(0);
    expect((await here.sandmesh("cp", `${id}:/tmp/timed`, back)).code).toBe(0);
    expect((await here.sandmesh("cp", `${id}:/tmp/alone`, join(here.scratch, "alone"))).code).toBe(0);
    const copies = [back, join(back, "file"), join(here.scratch, "alone")];
    expect(await Promise.all(copies.map(micros))).toEqual(copies.map(() => seconds * 1e6));
    expect((await stat(back)).mode & 0o777).toBe(0o700);

    await chmod(back, 0o751);
    await here.sandmesh("exec", id, "--", "chmod 711 /tmp/timed");
    expect((await here.sandmesh("cp", `${id}:/tmp/timed/.`, back)).code).toBe(0);
    expect((await here.sandmesh("cp", `${from}/.`, `${id}:/tmp/timed`)).code).toBe(0);
    expect((await stat(back)).mode & 0o777).toBe(0o751);
    expect((await here.sandmesh("exec", id, "--", "stat -c %a /tmp/timed")).stdout).toBe("711\n");
    await here.sandmesh("release", id);
  });

  test("a name that is no UTF-8 can be an argument, of this machine; one in the sandbox is refused by name", async () => {
    const id = await here.acquired();
    const script = `cd "${here.scratch}"; odd=$(printf 'odd\\377'); echo odd > "$odd"; mkdir "d$odd"; echo in > "d$odd/file"
      for each in "$odd" "d$odd"; do sandmesh cp "$each" ${id}:/tmp || exit; done
      sandmesh cp "$odd" "${id}:/tmp/new$odd" && sandmesh cp ${id}:/tmp/dodd "back$odd"; cat "back$odd"
      sandmesh exec ${id} -- 'cd /tmp; cat odd* newodd* dodd*/*'
      sandmesh cp "${id}:/tmp/$odd" .; echo $?`;
    await here.sandmesh("exec", id, "--", "echo plain > /tmp/dodd");
    const ran = await here.line(script);
    expect(ran.stdout).toBe("plain\nodd\nodd\nin\n2\n");
    expect(ran.stderr).toMatch(/^sandmesh: invalid_request: .*UTF-8.*\n$/);
    await here.sandmesh("release", id);
  });

  test("a file goes through a symlink and into a fifo that are there, and does not take their place", async () => {
    const id = await here.acquired();
    const place = join(here.scratch, "places");
    await mkdir(place);
    await writeFile(join(place, "file"), "old");
    await symlink("file", join(place, "link"));
    Bun.spawnSync(["mkfifo", join(place, "fifo")]);
    await here.sandmesh("exec", id, "--", "echo new > /tmp/new");
    expect((await here.sandmesh("cp", `${id}:/tmp/new`, join(place, "link"))).code).toBe(0);
    expect(await readlink(join(place, "link"))).toBe("file");
    expect(await readFile(join(place, "file"), "utf8")).toBe("new\n");
    const reading = run(["cat", join(place, "fifo")]);
    expect((await here.sandmesh("cp", `${id}:/tmp/new`, join(place, "fifo"))).code).toBe(0);
    expect((await reading).stdout).toBe("new\n");
    expect((await stat(join(place, "fifo"))).isFIFO()).toBe(true);
    for (const words of [
      ["", `${id}:/tmp`],
      [`${id}:/tmp/new`, ""],
    ]) {
      const ran = await here.sandmesh("cp", ...words);
      expect([ran.code, ran.stderr]).toEqual([
        2,
        "sandmesh: invalid_request: local: must be a path of this machine\n",
      ]);
    }
    await here.sandmesh("release", id);
  });

  test("what a sandbox leaves out is named, and SANDBOX: alone is refused with what to say instead", async () => {
    const id = await here.acquired();
    await here.sandmesh(
      "exec",
      id,
      "--",
      "mkdir -p /tmp/f/sub; cd /tmp/f; mkfifo sub/pipe; for i in $(seq 30); do mkfifo p$i; done",
    );
    const ran = await here.sandmesh("cp", `${id}:/tmp/f`, join(here.scratch, "f"));
    expect(ran.code).toBe(0);
    expect(ran.stderr.split("\n")).toHaveLength(22);
    expect(ran.stderr).toContain("left out p1: neither file, folder nor symlink\n");
    expect(ran.stderr).toEndWith("left out 11 more\n");
    const json = await here.sandmesh("--json", "cp", `${id}:/tmp/f/sub`, join(here.scratch, "sub"));
    expect(JSON.parse(json.stdout)).toMatchObject({ skipped: ["pipe"], skipped_count: 1 });

    const whole = await here.sandmesh("cp", `${id}:`, join(here.scratch, "whole"));
    expect([whole.code, whole.stderr]).toEqual([
      2,
      `sandmesh: invalid_request: ${id}: names no path: ${id}:. is the working folder\n`,
    ]);
    await here.sandmesh("release", id);
  });
});

describe("cp that is ended twice", () => {
  test("leaves no half folder beside its target, and says that it ended at once", async () => {
    const id = await here.acquired();
    const fill = "mkdir /tmp/many && cd /tmp/many && head -c 60000000 /dev/zero | split -b 20000 -a 4";
    expect((await here.sandmesh("exec", id, fill)).code).toBe(0);
    const folder = join(here.scratch, "twice");
    await mkdir(folder);
    const child = Bun.spawn([...PROGRAM, "cp", `${id}:/tmp/many`, join(folder, "new")], {
      env: { ...process.env, SANDMESH_HOME: here.home },
      stdout: "ignore",
      stderr: "pipe",
    });
    // So many that taking them away takes longer than the way to the second signal.
    await eventually("it copies", async () => {
      const half = (await readdir(folder)).find((name) => name.endsWith(".part"));
      return half !== undefined && (await readdir(join(folder, half))).length > 1_000;
    });
    child.kill("SIGINT");
    child.kill("SIGTERM");
    expect(await new Response(child.stderr).text()).toStartWith("sandmesh: ended at once");
    expect([await child.exited, await readdir(folder)]).toEqual([130, []]);
    await here.sandmesh("release", id);
  });
});
