// The command line: how it is used. Against a real mesh with real sandboxes.
import { describe, expect, test } from "bun:test";
import { readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Command } from "commander";
import { addBench } from "../../deploy/commands/bench.ts";
import { addKubernetes } from "../../deploy/commands/kubernetes.ts";
import { addConfig, addDoctor, addDown, addUp, addVersion } from "../../deploy/commands/mesh.ts";
import { createProgram } from "../../sdk/cli/program.ts";
import { onOneMesh } from "./one-mesh.ts";

const here = onOneMesh();

function wholeProgram(): Command {
  const program = createProgram();
  for (const add of [addUp, addDown, addDoctor, addConfig, addVersion, addBench, addKubernetes]) add(program);
  return program;
}

describe("usage", () => {
  test("wrong usage is 2, and 125 where 2 may be the command's own; help is 0", async () => {
    expect((await here.sandmesh("no-such-command")).code).toBe(2);
    expect((await here.sandmesh("acquire", "--cpu", "x", "host")).code).toBe(2);
    expect((await here.sandmesh("exec")).code).toBe(125);
    expect((await here.sandmesh("shell", "--no-such-option")).code).toBe(125);
    expect((await here.sandmesh("run", "--cpu", "x", "host", "--", "true")).code).toBe(125);
    expect((await here.sandmesh("run", "--help")).code).toBe(0);
    const help = await here.sandmesh("help", "run");
    expect(help.code).toBe(0);
    expect(help.stdout).toContain("Exit code");
    expect((await here.sandmesh("help", "kubernetes", "user")).stdout).toContain("sandmesh kubernetes user");
    for (const words of [
      ["help", "nosuch"],
      ["kubernetes", "help", "nosuch"],
      ["help", "kubernetes", "nosuch"],
    ]) {
      const ran = await here.sandmesh(...words);
      expect([ran.code, ran.stdout]).toEqual([2, ""]);
      expect(ran.stderr).toMatch(
        /^sandmesh: invalid_request: (there is no|unknown) command .*nosuch'?\n.{0,40}\n$/,
      );
    }
    expect((await here.sandmesh("help", "kubernetes", "imges")).stderr).toContain("Did you mean images?");
  });

  test("wrong usage leads to the help of that very command", async () => {
    for (const [words, help] of [
      [["no-such-command"], "(see sandmesh help)"],
      [["exec"], "(see sandmesh help exec)"],
      [["acquire", "--cpu", "x", "host"], "(see sandmesh help acquire)"],
      [["kubernetes", "user"], "(see sandmesh help kubernetes user)"],
      [["kubernetes", "help", "nosuch"], "(see sandmesh help kubernetes)"],
    ] as const)
      expect((await here.sandmesh(...words)).stderr).toEndWith(`\n${help}\n`);
  });

  test("every command's help says what it does and its exit codes, in 80 columns", async () => {
    const program = wholeProgram();
    for (const command of program.commands.flatMap((each) => [each, ...each.commands])) {
      if (command.name() === "complete") continue;
      let help = "";
      command.configureOutput({ writeOut: (text) => (help += text) }).outputHelp();
      const name = `${command.parent?.name()} ${command.name()}`;
      expect([name, command.description() !== ""]).toEqual([name, true]);
      expect([name, help.includes("\nExit code: ")]).toEqual([name, true]);
      expect([name, help.split("\n").filter((line) => line.length > 80)]).toEqual([name, []]);
    }
    const all = (await here.sandmesh("help")).stdout;
    expect(all).toContain("Exit code: 0 done");
    expect(all.split("\n").filter((line) => line.length > 80)).toEqual([]);
    expect(JSON.parse((await here.sandmesh("--json", "help", "ps")).stdout).help).toStartWith(
      "Usage: sandmesh ps",
    );
  });

  test("every argument's help says what it is", () => {
    const program = wholeProgram();
    const silent = program.commands
      .flatMap((each) => [each, ...each.commands])
      .filter((each) => each.name() !== "complete")
      .flatMap((each) => each.registeredArguments.map((argument) => ({ each, argument })))
      .filter(({ argument }) => argument.description === "");
    expect(silent.map(({ each, argument }) => `${each.name()} ${argument.name()}`)).toEqual([]);
  });

  test("help names the exit codes that the command can end with, and no others", async () => {
    const codes = async (...words: string[]) => {
      const [, said = ""] = (await here.sandmesh("help", ...words)).stdout.split("Exit code: ");
      return [...said.replaceAll(/\s+/g, " ").matchAll(/(?:^|[,;] )(\d+) /g)].map(([, code]) => Number(code));
    };
    expect(await codes("version")).toEqual([0, 1, 2, 141]);
    expect(await codes("down")).toEqual([0, 1, 2, 3, 141]);
    expect(await codes("bench", "exec")).toEqual([0, 1, 2, 141]);
    expect(await codes("ps")).toEqual([0, 1, 2, 130, 141]);
    expect(await codes("cp")).toEqual([0, 1, 2, 3, 130, 141]);
    expect((await here.sandmesh("help", "exec")).stdout).toContain("Exit code: the command's own");
    const nobodys = { env: { SANDMESH_HOME: join(here.scratch, "nobodys") } };
    expect((await here.sandmeshWith(nobodys, "down")).code).toBe(3);
    for (const [words, code] of [
      [["cp", "sb-nosuch:/x", "."], 3],
      [["logs", "sb-nosuch"], 3],
      [["context", "sb-nosuch"], 3],
      [["renew", "nosuch"], 3],
      [["release", "sb-nosuch"], 3],
      [["release", "--run", "nosuch"], 3],
      [["kubernetes", "user", "--state", join(here.scratch, "nosuch"), "a", "b"], 3],
      [["ps", "--run", "nosuch"], 0],
      [["acquire", "--provider", "nosuch", "host"], 1],
    ] as const)
      expect([words, (await here.sandmesh(...words)).code]).toEqual([words, code]);
  });

  test("wrong usage is told to programs, too, where they ask for JSON", async () => {
    for (const words of [
      ["--json", "no-such-command"],
      ["acquire", "--json", "--cpu", "x", "host"],
      ["--json", "acquire", "-n", "0", "host"],
      ["exec", "--json"],
      ["--json"],
      ["--json", "kubernetes"],
      ["bench", "--json"],
    ]) {
      const ran = await here.sandmesh(...words);
      expect(JSON.parse(ran.stdout)).toMatchObject({ error: { code: "invalid_request" } });
      expect(ran.stderr).toStartWith("sandmesh: invalid_request: ");
    }
    // Behind "--" all words are the command's.
    expect((await here.sandmesh("exec", "--nosuch", "sb-1", "--", "ls", "--json")).stdout).toBe("");
  });

  test("what would be ignored beside another option is refused, and nothing is done", async () => {
    const keys = join(here.scratch, "no-keys");
    for (const [words, code, said] of [
      [["release", "--all", "--run", "r"], 2, /--all.*--run/],
      [["release", "--all", "sb-1"], 2, /--all .*name none/],
      [["logs", "sb-1", "-l", "some-id"], 2, /--list .*name none/],
      [["logs", "sb-1", "-l", "-f"], 2, /--list.*--follow/],
      [["exec", "-d", "-i", "sb-1", "true"], 125, /--detach.*--interactive/],
      [["exec", "-d", "-s", "main", "sb-1", "true"], 125, /--detach.*--session/],
      [["exec", "-s", "main", "-u", "nobody", "sb-1", "true"], 125, /--session.*--user/],
      [["exec", "-d", "--outcome", "file", "sb-1", "true"], 125, /--detach.*--outcome/],
      [["drain", "--release-all", "--off"], 2, /--release-all.*--off/],
      [["kubernetes", "credentials", "--state", keys, "--host", "a", "--no-tls"], 2, /--host.*--no-tls/],
      [["bench", "acquire", "--kill", "--rounds", "2"], 2, /--kill.*--rounds/],
      [["down", "--url", "nats://elsewhere:4222"], 2, /--url names a mesh.* of this machine/],
      [["up", "--creds", "file"], 2, /--creds names a mesh/],
      [["doctor", "--ca", "file"], 2, /--ca names a mesh/],
      [["bench", "exec", "--url", "nats://elsewhere:4222"], 2, /--url names a mesh/],
    ] as const) {
      const ran = await here.sandmesh(...words);
      expect([words.join(" "), ran.code, ran.stdout]).toEqual([words.join(" "), code, ""]);
      expect(ran.stderr).toMatch(said);
      expect(ran.stderr).toStartWith("sandmesh: invalid_request: ");
    }
    expect(await Bun.file(join(keys, "ca.crt")).exists()).toBe(false);
  });

  test("help and version are JSON where JSON is asked for, also by their options", async () => {
    expect(JSON.parse((await here.sandmesh("--json", "ps", "--help")).stdout).help).toStartWith("Usage: ");
    const asked = (await here.sandmesh("--json", "--version")).stdout;
    expect(JSON.parse((await here.sandmesh("--json", "version")).stdout)).toMatchObject(JSON.parse(asked));
  });

  test("no description is broken into lines by hand, which help breaks again", () => {
    const program = wholeProgram();
    const all = program.commands.flatMap((command) => [command, ...command.commands]);
    expect(all.length).toBeGreaterThan(20);
    expect(all.filter((each) => each.description().includes("\n")).map((each) => each.name())).toEqual([]);
  });

  test("without a mesh the error says what to do", async () => {
    const ran = await here.sandmeshWith({ env: { SANDMESH_HOME: join(here.scratch, "empty") } }, "ps");
    expect(ran.code).toBe(1);
    expect(ran.stderr).toContain("sandmesh up");
  });

  test("--json stands before or behind the command", async () => {
    expect(JSON.parse((await here.sandmesh("ps", "--json")).stdout)).toBeArray();
    expect(JSON.parse((await here.sandmesh("--json", "ps")).stdout)).toBeArray();
  });

  test("a trainer's credential is written for its owner alone", async () => {
    const [state, out] = [join(here.scratch, "keys"), join(here.scratch, "me.creds")];
    await here.sandmesh("kubernetes", "credentials", "--no-tls", "--state", state);
    const ran = await here.sandmesh("kubernetes", "user", "--state", state, "--out", out, "default", "me");
    expect(ran).toEqual({ code: 0, stdout: "", stderr: "" });
    expect((await stat(out)).mode & 0o777).toBe(0o600);
    expect(await readFile(out, "utf8")).toContain("-----BEGIN NATS USER JWT-----");
    const nowhere = join(here.scratch, "no", "such", "folder");
    const refused = await here.sandmesh(
      "kubernetes",
      "user",
      "--state",
      state,
      "--out",
      nowhere,
      "default",
      "me",
    );
    expect(refused.stderr).toMatch(/^sandmesh: \w+: .*no\/such\/folder.*\n$/);
  });

  test("an argument or variable that is no UTF-8 does not arrive as another one", async () => {
    const bad = "$'a\\xff'";
    for (const [line, code] of [
      [`sandmesh run host -- printf %s ${bad}`, 125],
      [`sandmesh run -e K=${bad} host true`, 125],
      [`K=${bad} sandmesh run -e K host true`, 125],
      [`sandmesh ps --run ${bad}`, 2],
    ] as const) {
      const ran = await here.line(line);
      expect([line, ran.code, ran.stderr]).toEqual([line, code, expect.stringContaining("no UTF-8")]);
    }
    const kept = await here.sandmesh("run", "host", "--", "printf", "%s", "a\ufffd");
    expect(kept.stdout).toBe("a\ufffd");
  });

  test("a folder that cannot be made is a file error, not a fault of sandmesh's own", async () => {
    for (const words of [
      ["images", "/proc/x"],
      ["credentials", "--state", "/etc/passwd"],
    ])
      expect((await here.sandmesh("kubernetes", ...words)).stderr).toStartWith("sandmesh: file_error: /");
  });

  test("doctor answers where no mesh ever was", async () => {
    const ran = await here.sandmeshWith({ env: { SANDMESH_HOME: join(here.scratch, "never-up") } }, "doctor");
    expect({ code: ran.code, stderr: ran.stderr }).toEqual({ code: 0, stderr: "" });
  });

  test("doctor tells a list of what was tried in one line of its table", async () => {
    const env = { SANDMESH_NATS_SERVER: "/no/such/nats-server" };
    const { code, stdout } = await here.sandmeshWith({ env }, "doctor");
    expect(code).toBe(1);
    expect(stdout).toMatch(/^no +nats-server +.*tried: SANDMESH_NATS_SERVER: .*$/m);
    expect(stdout).not.toContain("\\x0a");
  });

  test("config says where the mesh's folder is, and what says so", async () => {
    const home = (env: Record<string, string>) =>
      here
        .sandmeshWith(
          { env: { HOME: here.scratch, SANDMESH_HOME: "", XDG_STATE_HOME: "", ...env } },
          "config",
        )
        .then(({ stderr, stdout }) => /^home: (.*)$/m.exec(stdout + stderr)?.[1]);
    const named = join(here.scratch, "named");
    expect(await home({ SANDMESH_HOME: named })).toBe(`${named} (SANDMESH_HOME)`);
    const other = "SANDMESH_HOME names another";
    expect(await home({ XDG_STATE_HOME: named })).toBe(`${named}/sandmesh (below XDG_STATE_HOME; ${other})`);
    const byDefault = join(here.scratch, ".local", "state", "sandmesh");
    expect(await home({})).toBe(`${byDefault} (the default; ${other})`);
  });

  test("doctor, config and version answer, also as JSON", async () => {
    expect((await here.sandmesh("doctor")).code).toBe(0);
    const settings = JSON.parse((await here.sandmesh("--json", "config")).stdout);
    expect(settings.settings.length).toBeGreaterThan(10);
    expect(settings.settings.every((setting: { about: string }) => setting.about !== "")).toBe(true);
    const config = (await here.sandmesh("config")).stdout;
    for (const { name, variable } of settings.settings)
      expect(config).toMatch(new RegExp(`^${name} .* ${variable}$`, "m"));
    expect(config.split("\n").filter((line) => line.length > 80)).toEqual([]);
    expect(JSON.parse((await here.sandmesh("--json", "version")).stdout).sandmesh).toMatch(/^\d+\.\d+\.\d+$/);
  });
});
