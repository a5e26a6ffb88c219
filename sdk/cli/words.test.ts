import { expect, test } from "bun:test";
import { Command } from "commander";
import { passWordsOn } from "./words.ts";

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
