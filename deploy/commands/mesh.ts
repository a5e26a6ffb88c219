// up, down, doctor, config, version: what runs a mesh on this machine.
import { userInfo } from "node:os";
import { type Command, InvalidArgumentError, Option } from "commander";
import manifest from "../../package.json" with { type: "json" };
import { describePoolConfig, type Setting } from "../../pool/config.ts";
import { hereOnly, withOutput } from "../../sdk/cli/context.ts";
import { forgetContextsHere } from "../../sdk/cli/nats-contexts.ts";
import { dim, green, red, table } from "../../sdk/cli/output.ts";
import { parseCount } from "../../sdk/cli/units.ts";
import { homeSource, sandmeshHome } from "../../sdk/typescript/settings.ts";
import { diagnose } from "../local/doctor.ts";
import { describeLeft, nothingLeft } from "../local/left.ts";
import { down, up } from "../local/up.ts";

/** Bun says "unknown" where the environment names no user, as in most containers. */
function loginName(): string {
  const { username } = userInfo();
  if (username !== "unknown") return username;
  return Bun.spawnSync(["id", "-un"]).stdout.toString().trim() || username;
}

/** This machine's user as a user of the mesh: an id, and none of the reserved ones. */
function meshUser(): string {
  const name = loginName()
    .toLowerCase()
    .replace(/[^a-z0-9-]/g, "-")
    .replace(/^-+/, "")
    .slice(0, 40);
  return /^(pool|operator|sb-.*)?$/.test(name) ? `user-${name}` : name;
}

/** Numbers, lists and maps are JSON, words stand as they are; what is no setting, or not its value, `up` refuses. */
function collectSetting(text: string, soFar: Record<string, unknown> = {}): Record<string, unknown> {
  const [name = "", value] = text.split(/=(.*)/s);
  if (name === "" || value === undefined) throw new InvalidArgumentError("not NAME=VALUE");
  return { ...soFar, [name]: jsonOrText(value) };
}

function jsonOrText(text: string): unknown {
  if (!/^(-?\d|[[{])/.test(text)) return text;
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

const MAX_PORT = 65_535;
function parsePort(text: string): number {
  const port = parseCount(text);
  if (port > MAX_PORT) throw new InvalidArgumentError(`a port is at most ${MAX_PORT}`);
  return port;
}

export function addUp(program: Command): void {
  hereOnly(program.command("up"))
    .summary("start a mesh on this machine")
    .description(
      "Starts a mesh on this machine, in the background: nats-server, the pool, and the local provider. Prints its URL and a credentials file, and makes it the default of all commands and SDKs. Its state is in SANDMESH_HOME, or else in $XDG_STATE_HOME/sandmesh, or ~/.local/state/sandmesh: `config` prints which.",
    )
    .option("--port <n>", "of nats-server; default the last one, or a free one", parsePort)
    .addOption(
      new Option("--provider <name>", "again for more")
        .choices(["local", "simulated"])
        .argParser(collectProvider),
    )
    .option("--set <name=value>", "a setting of the pool, see `config` (again for more)", collectSetting)
    .action(async (flags: UpFlags, command: Command) => {
      await withOutput(command, async (output) => {
        const { already, ...address } = await up(sandmeshHome(), {
          user: meshUser(),
          port: flags.port,
          pool: flags.set,
          providers: flags.provider,
        });
        await output.result({ ...address, already }, `${address.url}\n${address.credentials}`);
        const asked = flags.port ?? flags.set ?? flags.provider;
        const ignored =
          asked === undefined ? "" : "; it goes on with the settings it has: `sandmesh down` first";
        output.note(
          dim(
            already ? `was up already${ignored}` : "up; `sandmesh run host -- uname -a` is a first command",
          ),
        );
      });
    });
}

interface UpFlags {
  port?: number;
  provider?: ("local" | "simulated")[];
  set?: Record<string, unknown>;
}

function collectProvider(name: string, soFar: UpFlags["provider"] = []): NonNullable<UpFlags["provider"]> {
  if (name !== "local" && name !== "simulated")
    throw new InvalidArgumentError("there is local and simulated");
  return [...soFar, name];
}

export function addDown(program: Command): void {
  hereOnly(program.command("down"))
    .summary("end the mesh on this machine, and all its sandboxes")
    .description(
      "Ends the mesh on this machine and all its sandboxes, and tells what is left of it: nothing.",
    )
    .action(async (_flags: unknown, command: Command) => {
      await withOutput(command, async (output) => {
        const left = await down(sandmeshHome());
        forgetContextsHere();
        await output.result(left, describeLeft(left));
        if (!nothingLeft(left)) process.exitCode = 1;
      });
    });
}

export function addDoctor(program: Command): void {
  hereOnly(program.command("doctor"))
    .summary("what this machine can run, what is missing, what is not isolated")
    .description(
      "Looks at this machine: what it can run, what is missing and how to get it, what is not isolated.",
    )
    .action(async (_flags: unknown, command: Command) => {
      await withOutput(command, async (output) => {
        const findings = await diagnose(sandmeshHome());
        const rows = findings.map(({ check, ok, detail, fix }) => [
          ok ? green("ok") : red("no"),
          check,
          inOneLine(fix === undefined || ok ? detail : `${detail} (${fix})`),
        ]);
        await output.result(findings, table(["", "CHECK", "DETAIL"], rows));
        if (findings.some((finding) => finding.needed && !finding.ok)) process.exitCode = 1;
      });
    });
}

/** Of a list, which has an item a line. */
const inOneLine = (text: string): string =>
  text.replace("\n- ", ": ").replaceAll("\n- ", "; ").replaceAll("\n", " ");

export function addConfig(program: Command): void {
  program
    .command("config")
    .summary("the pool's settings, with units, defaults and reasons")
    .description(
      "Prints every setting of the pool with its default, the variable that sets it, and its reason. `up --set NAME=VALUE` sets one of this machine's mesh, the variable one of any pool.",
    )
    .action(async (_flags: unknown, command: Command) => {
      await withOutput(command, async (output) => {
        const settings = describePoolConfig();
        await output.result({ home: sandmeshHome(), settings }, settingsTable(settings));
        output.note(dim(`home: ${sandmeshHome()} (${homeSource()})`));
      });
    });
}

/** A setting a row, and below it why: beside it there is no room for a sentence. */
function settingsTable(settings: readonly Setting[]): string {
  const rows = settings.map(({ name, default: value, variable }) => [
    name,
    value === undefined ? dim("none") : JSON.stringify(value),
    variable,
  ]);
  const [headings, ...lines] = table(["=SETTING", ">DEFAULT", "=VARIABLE"], rows, WIDTH).split("\n");
  const told = lines.map((line, at) => {
    const about = Bun.wrapAnsi(settings[at]?.about ?? "", WIDTH - INDENT.length).split("\n");
    return [line, ...about.map((part) => dim(`${INDENT}${part}`))].join("\n");
  });
  return [headings, ...told].join("\n");
}

const WIDTH = 80;
const INDENT = "    ";

export function addVersion(program: Command): void {
  program
    .command("version")
    .summary("print the version")
    .description("Prints the version of sandmesh and of the runtime that it runs on.")
    .action(async (_flags: unknown, command: Command) => {
      await withOutput(command, async (output) => {
        await output.result(
          { sandmesh: manifest.version, bun: Bun.version },
          `sandmesh ${manifest.version} (bun ${Bun.version})`,
        );
      });
    });
}
