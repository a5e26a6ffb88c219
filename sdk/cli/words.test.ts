import { expect, test } from "bun:test";
import { Command } from "commander";
import { passWordsOn, shellLine } from "./words.ts";

/** What `exec` makes of these words. */
function parsed(...argv: string[]): { operands: string[]; options: object } {
  const command = new Command("exec")
    .argument("<sandbox>")
    .argument("<command...>")
    .option("-e, --env <value>")
    .option("-d, --detach")
    .option("--json")
    .exitOverride();
  passWordsOn(command, 1).parse(argv, { from: "user" });
  return { operands: command.args, options: command.opts() };
}

test.each([
  [["sb", "ls", "-d", "--json", "-e"], ["sb", "ls", "-d", "--json", "-e"], {}],
  [["-d", "sb", "ls", "-d"], ["sb", "ls", "-d"], { detach: true }],
  [["sb", "-de", "A=1", "env", "-e"], ["sb", "env", "-e"], { detach: true, env: "A=1" }],
  [["sb", "-eA=1", "env", "-d"], ["sb", "env", "-d"], { env: "A=1" }],
  [
    ["sb", "--env=A=1", "--json", "git", "log", "--", "-x"],
    ["sb", "git", "log", "--", "-x"],
    { env: "A=1", json: true },
  ],
  [["sb", "--env", "--detach", "git", "-d"], ["sb", "git", "-d"], { env: "--detach" }],
  [["sb", "--", "-d", "--", "x"], ["sb", "-d", "--", "x"], {}],
  [["--", "sb", "ls", "-d"], ["sb", "ls", "-d"], {}],
  [["sb", "-", "-d"], ["sb", "-", "-d"], {}],
])("of %j nothing of the command's own words is swallowed", (argv, operands, options) => {
  expect(parsed(...argv)).toEqual({ operands, options });
});

/** What its arguments are: `<one><two>`. */
const SHOW = "show() { printf '<%s>' \"$@\"; }; ";
const HOSTILE = [
  "",
  " ",
  "'",
  "''a''",
  "a'b",
  '"',
  "$HOME",
  "$(echo ran)",
  "`echo ran`",
  "a;b|c&d>e<f",
  "\\",
  "a\\",
  "*",
  "/*",
  "?[a-z]",
  "{a,b}",
  "~",
  "~root",
  "=ls",
  "A=~root",
  "#",
  "!!",
  "^a^b",
  "%1",
  "a\nb\n",
  "a\tb\r",
  "ä\u{1f600}\u00a0\u2028",
  "-n",
  "--",
  "a.b/c-d_e:f,g@h+i",
];

test.each([
  [["bash", "-c"], "shopt -s extglob; "],
  [["dash", "-c"], ""],
  [["busybox", "ash", "-c"], ""],
  [["zsh", "-fc"], ""],
  [["zsh", "-fc"], "setopt extendedglob rcquotes magicequalsubst ksharrays; "],
])("several words are each one to %j (%j), whatever is in them", (shell, setUp) => {
  const line = setUp + SHOW + shellLine(["show", ...HOSTILE]);
  const ran = Bun.spawnSync([...shell, line], { stdio: ["ignore", "pipe", "pipe"] });
  const stdout = HOSTILE.map((word) => `<${word}>`).join("");
  expect({ stdout: ran.stdout.toString(), stderr: ran.stderr.toString() }).toEqual({ stdout, stderr: "" });
});

test("one word is the line, and of several those stay bare that mean themselves, as an alias must", () => {
  expect(shellLine(["echo $A; f"])).toBe("echo $A; f");
  expect(shellLine([])).toBe("");
  expect(shellLine(["ll", "-a", "src/a.ts", "A=1", ""])).toBe("ll -a src/a.ts 'A=1' ''");
  expect(() => shellLine(["echo", "a\0b"])).toThrow("command: no word can have a NUL in it");
});
