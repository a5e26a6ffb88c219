// The file that an environment names for its shells: images make their virtual environments so. What it sets up for a
// command it sets up for a session, too.
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SessionClosedError } from "../../broker/contract/index.ts";
import { closeSessions, run, testSessions } from "./testing.ts";

afterEach(closeSessions);
const folder = mkdtempSync(join(tmpdir(), "environment-file-"));
beforeAll(() => symlinkSync("/bin/bash", join(folder, "sh")));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

interface Named {
  shell: string;
  /** The variable that names the file, and what it is for the file `env` in a folder that $WHERE names. */
  variable: string;
  value: string;
  file: string;
}
const SHELLS: Named[] = [
  { shell: "bash", variable: "BASH_ENV", value: '$WHERE/"an" env', file: '"an" env' },
  { shell: "sh", variable: "ENV", value: "$WHERE/an env", file: "an env" },
  { shell: "dash", variable: "ENV", value: "$WHERE/an env", file: "an env" },
  { shell: "busybox", variable: "ENV", value: "$WHERE/an env", file: "an env" },
  { shell: "zsh", variable: "ZDOTDIR", value: "", file: ".zshenv" },
];

let made = 0;
/** The environment that names a file of that text. */
function environment({ variable, value, file }: Named, text: string | undefined): Record<string, string> {
  const where = join(folder, String(++made));
  mkdirSync(where);
  if (text !== undefined) writeFileSync(join(where, file), text);
  return { WHERE: where, [variable]: value === "" ? where : value };
}
/** `sh` is bash by that name here. */
const programOf = ({ shell }: Named): string => (shell === "sh" ? join(folder, shell) : shell);

describe.each(SHELLS)("$shell by $variable", (named) => {
  const shell = programOf(named);
  const missing = shell === named.shell && Bun.which(shell) === null;
  const each = missing && process.env.CI !== "true" ? test.skip : test;

  each("a session begins with what its environment file sets up, and not with what that says", async () => {
    const text = [
      "echo a banner; echo a warning >&2",
      // bash called `sh` reads it by itself, and has its lines from stdin by then.
      named.shell === "sh" ? "" : "cat",
      "cd /usr; export SEEN=exported; plain=variable; PS1='(venv) $ '",
      'greet() { echo "hello $1"; }',
      'alias shout="echo LOUD"',
      "false",
    ].join("\n");
    const s = await testSessions();
    await s.open({ session: "s", shell, env: environment(named, text) });
    const first = await run(s, 'pwd; env | grep ^SEEN=; echo "$plain"; greet you; shout');
    expect([first.stdout, first.stderr, first.what]).toEqual([
      "/usr\nSEEN=exported\nvariable\nhello you\nLOUD\n",
      "",
      "exited 0",
    ]);
    expect((await run(s, "cat; echo on", { stdin: Buffer.from("in\n") })).stdout).toBe("in\non\n");
    // Whatever it starts has it, too.
    expect((await run(s, `env | grep -c ^${named.variable}=`)).stdout).toBe("1\n");
  });

  each(
    "a file that is not there, or says what the shell does not know, costs the session nothing",
    async () => {
      for (const text of [undefined, "", "no-such-command --at-all\n. /no/such/file\n", "fi\n"]) {
        const s = await testSessions();
        await s.open({ session: "s", shell, env: environment(named, text) });
        const on = await run(s, "echo on");
        expect([text, on.stdout, on.stderr, on.what]).toEqual([text, "on\n", "", "exited 0"]);
      }
    },
  );

  each("a file that ends the shell is told, and keeps nobody waiting", async () => {
    const s = await testSessions();
    const opening = s.open({ session: "s", shell, env: environment(named, "exit 3\n") });
    expect(await opening.catch((error: unknown) => error)).toBeInstanceOf(SessionClosedError);
    expect((await s.open({ session: "s", shell })).busy).toBe(false);
  });
});

test("bash called by its own name takes no notice of ENV, nor does it look for the file in PATH", async () => {
  const [bash] = SHELLS as [Named];
  const where = environment({ ...bash, variable: "PATH", value: "" }, undefined).WHERE ?? "";
  writeFileSync(join(where, "elsewhere"), "plain=wrong\n");
  const s = await testSessions();
  const PATH = `${where}:${process.env.PATH}`;
  await s.open({
    session: "s",
    shell: "bash",
    env: { PATH, ENV: join(where, "elsewhere"), BASH_ENV: "elsewhere" },
  });
  expect((await run(s, 'echo "[$plain] $ENV $BASH_ENV"; shopt sourcepath')).stdout).toBe(
    `[] ${where}/elsewhere elsewhere\nsourcepath     \ton\n`,
  );
});

test("Python runs what PYTHONSTARTUP names before the first command, in its namespace", async () => {
  const file = join(folder, "startup.py");
  const env = { PYTHONSTARTUP: file };
  const s = await testSessions();
  writeFileSync(
    file,
    "print('a banner')\nimport json\ndef f(): return json.dumps([here])\nhere = 1\n1 / 0\n",
  );
  await s.open({ session: "s", shell: "python3", env });
  const first = await run(s, "f()");
  expect([first.stdout, first.stderr, first.what]).toEqual(["'[1]'\n", "", "exited 0"]);
  await s.close("s");
  rmSync(file);
  await s.open({ session: "s", shell: "python3", env });
  expect((await run(s, "1")).stdout).toBe("1\n");
});
