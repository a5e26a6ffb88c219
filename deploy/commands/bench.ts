// bench: each benchmark a command of its own, with the flags of its script in test/bench, which reads them by the same
// words.
import { join } from "node:path";
import { Command, Option } from "commander";
import { endingWithUs } from "../../broker/server/ending.ts";
import { globalsOf, hereOnly } from "../../sdk/cli/context.ts";
import { addHelp, addNotes } from "../../sdk/cli/help.ts";
import { parseSome } from "../../sdk/cli/units.ts";
import { ENDING_SIGNALS } from "../../sdk/typescript/exit.ts";

type Flag = readonly [flags: string, about: string, byDefault?: number | undefined, not?: string];

const BENCHES: Record<string, { about: string; flags: readonly Flag[] }> = {
  agent: {
    about: "what a daemon costs: boot, memory, wake-ups at rest, size",
    flags: [
      ["--n <boots>", "so many boots", 15],
      ["--idle-s <seconds>", "at rest for so long", 20],
    ],
  },
  boot: { about: "from nothing to the first command", flags: [["--n <boots>", "one after the other", 30]] },
  exec: {
    about: "a command that does nothing, beside a C loop of posix_spawn",
    flags: [
      ["--n <commands>", "so many of each kind", 2000],
      ["--image <image>", "on the mesh of SANDMESH_URL, in a sandbox of this image"],
    ],
  },
  stream: {
    about: "a command's output, beside NATS alone",
    flags: [
      ["--mb <size>", "so much in a round, MB", 256],
      ["--rounds <n>", "rounds", 5],
    ],
  },
  files: {
    about: "a file up and down, beside NATS alone",
    flags: [
      ["--mib <size>", "the file's size, MiB", 64],
      ["--rounds <n>", "rounds", 8],
    ],
  },
  acquire: {
    about: "a burst from many clients, of simulated sandboxes",
    flags: [
      ["--n <sandboxes>", "so many at once", 10_000],
      ["--clients <n>", "client processes", 8],
      ["--hosts <n>", "processes of simulated sandboxes", 1],
      ["--rounds <n>", "acquires and releases all so many times", 1],
      ["--lease-ms <ms>", "of the clients' runs", 60_000],
      ["--kill", "ends the clients by SIGKILL, and waits until nothing is left", undefined, "rounds"],
    ],
  },
};

function addFlags(command: Command, flags: readonly Flag[]): Command {
  for (const [words, about, byDefault, not = []] of flags) {
    const option = new Option(words, about).conflicts(not);
    command.addOption(byDefault === undefined ? option : option.argParser(parseSome).default(byDefault));
  }
  return command;
}

/** The flags of the benchmark whose script this process runs. Wrong ones end it with 2. */
export function benchFlags<Flags extends object>(name: string): Flags {
  const command = addFlags(new Command(name), BENCHES[name]?.flags ?? []).option("--json");
  return command
    .allowExcessArguments(false)
    .exitOverride((error) => process.exit(error.exitCode === 0 ? 0 : 2))
    .parse()
    .opts<Flags>();
}

export function addBench(program: Command): void {
  const bench = hereOnly(program.command("bench"))
    .summary("measure, and print one line of JSON")
    .description(
      "Starts a mesh of its own, measures, ends it, and prints one line of JSON; progress on stderr. What the fields mean: test/bench/README.md.",
    );
  for (const [name, { about, flags }] of Object.entries(BENCHES))
    addFlags(bench.command(name), flags).summary(about).description(sentence(about)).action(runScript);
  addHelp(bench);
  addNotes(bench, FLAGS_HELP);
}

const sentence = (text: string): string => `${text[0]?.toUpperCase()}${text.slice(1)}.`;

const FLAGS_HELP = Object.entries(BENCHES)
  .map(([name, { flags }]) => {
    const shown = flags.map(([words, , byDefault]) =>
      byDefault === undefined ? `[${words}]` : `[${words.replace(/<.*>/, String(byDefault))}]`,
    );
    return `bench ${name} ${shown.join(" ")}`;
  })
  .join("\n");

async function runScript(_flags: unknown, command: Command): Promise<void> {
  const script = join(import.meta.dir, "..", "..", "test", "bench", `${command.name()}.ts`);
  if (!(await Bun.file(script).exists())) command.error("error: benchmarks run in a checkout only");
  // TERM, so that the benchmark ends its mesh, and then itself.
  const bench = Bun.spawn(endingWithUs([process.execPath, script, ...givenWords(command)], "TERM"), {
    stdio: ["ignore", "inherit", "inherit"],
  });
  for (const signal of ENDING_SIGNALS) process.on(signal, () => bench.kill(signal));
  process.exitCode = await bench.exited;
}

/** The benchmark's own flags, as they were given, and --json: its errors are told by that. */
function givenWords(command: Command): string[] {
  const own = command.options.filter(({ hidden }) => !hidden);
  const json = globalsOf(command).json ? ["--json"] : [];
  const flags = own.flatMap((option) => {
    const value: unknown = command.getOptionValue(option.attributeName());
    if (command.getOptionValueSource(option.attributeName()) !== "cli") return [];
    return value === true ? [`${option.long}`] : [`${option.long}`, String(value)];
  });
  return [...flags, ...json];
}
