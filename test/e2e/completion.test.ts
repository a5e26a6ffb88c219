// Completion, in real shells: as README says to set it up, and of all that there is to complete.
import { describe, expect, test } from "bun:test";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { onOneMesh } from "./one-mesh.ts";
import { PROGRAM_WORDS, ROOT, run } from "./program.ts";

const here = onOneMesh();

/** What may stand behind these words; undefined where files may. */
async function completed(...words: string[]): Promise<string[] | undefined> {
  const { code, stdout } = await here.sandmesh("complete", "--", ...words);
  return code === 0 ? stdout.split("\n").filter(Boolean) : undefined;
}

test("at each place stands what it takes: sandboxes, runs, commands, values, files of this machine, or nothing known", async () => {
  const id = (await here.sandmesh("acquire", "--run", "named", "host")).stdout.trim();
  const commands = (await here.sandmesh("complete", "--", "")).stdout.split("\n").filter(Boolean);
  expect(commands).toContain("release");
  for (const [words, found] of [
    [["cp", ""], [`${id}:`]],
    [["cp", "sb-"], [`${id}:`]],
    [["cp", "./a", "sb-"], [`${id}:`]],
    [["cp", "-L", "--root", "/", "./a", "sb-"], [`${id}:`]],
    [["cp", "./a"], undefined],
    [["cp", `${id}:/x`, ""], undefined],
    [["cp", id, ":", "/x", ""], undefined],
    [["cp", `${id}:/x`], []],
    [["cp", id, ":"], []],
    [["cp", id, ":", "/x"], []],
    [["help", ""], commands],
    [["help", "rel"], ["release"]],
    [["help", "kubernetes", "us"], ["user"]],
    [["kubernetes", "help", "us"], ["user"]],
    [["help", "exec", ""], []],
    [["acquire", "--run", ""], ["named"]],
    [["release", "--run", ""], ["named"]],
    [["ps", "--run", "na"], ["named"]],
    [["events", "--sandbox", ""], [id]],
    [
      ["renew", ""],
      [id, "named"],
    ],
    [
      ["context", ""],
      [id, "pool"],
    ],
    [["exec", "--session", ""], []],
    [["exec", "-ds", ""], []],
    [["exec", id, "ls", "--det"], undefined],
    [["exec", id, "ls", "-u", ""], undefined],
    [["exec", "--", id, ""], undefined],
    [["exec", "--outcome", ""], undefined],
    [["--creds", ""], undefined],
    [
      ["up", "--provider", ""],
      ["local", "simulated"],
    ],
    [
      ["run", "--network", ""],
      ["none", "host"],
    ],
    [["run", ""], ["host"]],
    [["run", "./"], undefined],
    [["logs", id, ""], []],
    [["renew", id, ""], []],
    [
      ["completion", ""],
      ["bash", "zsh", "fish"],
    ],
    [["kubernetes", "user", ""], []],
    [["kubernetes", "images", ""], undefined],
    [["nosuch", ""], []],
  ] as const)
    expect([words, await completed(...words)]).toEqual([words, found as unknown as string[]]);
  await here.sandmesh("release", id);
  expect(await completed("exec", "")).toEqual([]);
});

describe("with README's alias", async () => {
  const readme = await readFile(join(ROOT, "README.md"), "utf8");
  const alias = /^\$ (alias sandmesh=.*)$/m.exec(readme)?.[1] ?? "README has no alias";
  const completion =
    /`(eval "\$\(sandmesh completion bash\)")`/.exec(readme)?.[1] ?? "README has no completion";
  const setUp = (shell: string) => `${alias}; ${completion.replace("bash", shell)}`;
  const home = async () => {
    const HOME = join(here.scratch, "home");
    await mkdir(HOME, { recursive: true });
    return { SANDMESH_HOME: here.home, HOME, ZDOTDIR: HOME, XDG_CONFIG_HOME: HOME };
  };

  test.each([
    ["bash", ["--norc", "-i"]],
    ["zsh", ["-fi"]],
  ] as const)(
    "in %s the tabulator completes a command, an option and a sandbox, and the program runs",
    async (shell, flags) => {
      const id = await here.acquired();
      const press = ["python3", join(import.meta.dir, "press-tab.py"), setUp(shell), id, shell, ...flags];
      expect(await run(press, { env: await home() })).toEqual({ code: 0, stdout: "", stderr: "" });
      await here.sandmesh("release", id);
    },
  );

  test("in fish they are completed, and the program runs", async () => {
    const id = await here.acquired();
    const asked = ["rel", "exec --det", "exec sb-", "cp sb-", "up --provider ''"].map(
      (words) => `complete -C 'sandmesh ${words}'`,
    );
    const script = [setUp("fish"), ...asked, "sandmesh ps --ids"].join("\n");
    const ran = await run(["fish", "-c", script], { env: await home() });
    const stdout = `release\n--detach\n${id}\n${id}:\nlocal\nsimulated\n${id}\n`;
    expect(ran).toEqual({ code: 0, stdout, stderr: "" });
    await here.sandmesh("release", id);
  });
});

test.each([
  ["bash", ["--norc", "-i"]],
  ["zsh", ["-fi"]],
  ["fish", ["-i"]],
] as const)(
  "in %s a completed file is one word, whatever is in its name, and nothing of it runs",
  async (shell, flags) => {
    const HOME = join(here.scratch, `files-${shell}`);
    const [folder, bin] = [join(HOME, "folder"), join(HOME, "bin")];
    await mkdir(join(folder, "dd inner"), { recursive: true });
    await mkdir(bin);
    await writeFile(join(folder, "zz $(touch pwned) y"), "");
    await writeFile(join(folder, "dd inner", "sub"), "");
    const program = `[ "$1" = cp ] || exec ${PROGRAM_WORDS} "$@"\nprintf '<%s>' "$@"; echo`;
    await writeFile(join(bin, "sandmesh"), `#!/bin/sh\n${program}\n`, { mode: 0o755 });
    const setUp =
      shell === "fish" ? "sandmesh completion fish | source" : `eval "$(sandmesh completion ${shell})"`;
    const press = ["python3", join(import.meta.dir, "press-tab-file.py"), setUp, shell, ...flags];
    const PATH = `${bin}:${process.env.PATH}`;
    const env = { SANDMESH_HOME: here.home, HOME, ZDOTDIR: HOME, XDG_CONFIG_HOME: HOME, TERM: "dumb", PATH };
    expect(await run(press, { env, cwd: folder })).toEqual({ code: 0, stdout: "", stderr: "" });
    expect((await readdir(folder)).sort()).toEqual(["dd inner", "zz $(touch pwned) y"]);
  },
);

test("bash completes commands, options and sandboxes", async () => {
  const id = await here.acquired();
  const wrapper = join(here.scratch, "sandmesh");
  await writeFile(wrapper, `#!/bin/sh\nexec ${PROGRAM_WORDS} "$@"\n`, { mode: 0o755 });
  const complete = async (...words: string[]) => {
    const line = words.map((word) => `'${word}'`).join(" ");
    const script = `eval "$(sandmesh completion bash)"; COMP_WORDS=(sandmesh ${line}); COMP_CWORD=${words.length}; _sandmesh; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const ran = await run(["bash", "-c", script], {
      env: { SANDMESH_HOME: here.home, PATH: `${here.scratch}:${process.env.PATH}` },
    });
    return ran.stdout.trim().split("\n");
  };
  expect(await complete("rel")).toEqual(["release"]);
  expect(await complete("exec", "--det")).toEqual(["--detach"]);
  expect(await complete("exec", "sb-")).toContain(id);
  expect(await complete("--url", "nats://x", "rele")).toEqual(["release"]);
  expect(await complete("exec", "-e", "A=1", "sb-")).toContain(id);
  expect(await complete("ps", "--js")).toEqual(["--json"]);
  expect(await complete("events", "--what", "gr")).toEqual(["granted"]);
  expect(await complete("events", "--what", "granted", "rel")).toContain("released");
  expect(await complete("cp", "sb-")).toEqual([`${id}:`]);
  expect(await complete("kubernetes", "us")).toEqual(["user"]);
  expect(await complete("kubernetes", "user", "--ou")).toEqual(["--out"]);
  expect(await complete("bench", "str")).toEqual(["stream"]);
  const zsh = `autoload -Uz compinit; compinit -u -d ${here.scratch}/dump; eval "$(sandmesh completion zsh)"
    compadd() { shift; print -l -- "$@"; }; _files() { print files; }
    words=(sandmesh exec ''); CURRENT=3; _sandmesh; words=(sandmesh cp sb-); _sandmesh; words=(sandmesh cp ./); CURRENT=3; _sandmesh`;
  const inZsh = await run(["zsh", "-fc", zsh], {
    env: { SANDMESH_HOME: here.home, PATH: `${here.scratch}:${process.env.PATH}` },
  });
  expect({ lines: inZsh.stdout.trim().split("\n"), stderr: inZsh.stderr }).toEqual({
    lines: expect.arrayContaining([id, `${id}:`, "files"]),
    stderr: "",
  });
  await here.sandmesh("release", id);
});
