// events: what happens in the mesh, as it happens.
import { type Command, Option } from "commander";
import { CanceledError, EVENTS } from "../../../broker/contract/index.ts";
import type { MeshEvent, PoolEvent } from "../../typescript/mod.ts";
import { defined } from "../../typescript/spec.ts";
import { withMesh } from "../context.ts";
import { EXIT } from "../exit.ts";
import { bold, jsonLine, shown, stateColor, write } from "../output.ts";

interface EventFlags {
  run?: string;
  sandbox?: string;
  what?: PoolEvent["what"][];
}

const COLUMNS = { time: 12, what: 9, sandbox: 16, run: 24 } as const;

export function addEvents(program: Command): void {
  program
    .command("events")
    .summary("watch what happens to sandboxes")
    .description(
      "Prints what happens to the tenant's sandboxes from now on, until Ctrl-C: a line an event; with --json an object a line. That the pool is draining is told to tenants that have something in it or have asked it since its start; `mesh.status()` of the SDKs says so at any time. Where the connection was lost and is back, or what reads this is too far behind, a line `missed` says that events may be missing: `ps` shows what there is.",
    )
    .option("--run <id>", "of this run only")
    .option("--sandbox <id>", "of this sandbox only")
    .addOption(new Option("--what <kind...>", "of these kinds only").choices(EVENTS))
    .action(async (flags: EventFlags, command: Command) => {
      await withMesh(command, async ({ mesh, output, signal }) => {
        const { run, sandbox, what } = flags;
        const line = (text: string) => write("stdout", `${text}\n`, signal);
        if (!output.json) await line(rowOf(bold, "TIME", "EVENT", "SANDBOX", "RUN", "REASON"));
        try {
          for await (const event of mesh.events(defined({ run, sandbox, what, signal })))
            await line(output.json ? jsonLine(event) : describe(event));
        } catch (error) {
          // Ctrl-C is how it ends.
          if (!(error instanceof CanceledError)) throw error;
        }
        return EXIT.ok;
      });
    });
}

const describe = ({ at, what, sandbox = "", run = "", reason = "" }: MeshEvent): string =>
  rowOf(
    stateColor(what),
    timeOf(at),
    what,
    sandbox,
    run,
    what === "missed" ? "events before this may be missing: see `sandmesh ps`" : shown(reason),
  );

/** "14:03:07.123", on this machine's clock. */
function timeOf(at: string): string {
  const time = new Date(at);
  return `${time.toTimeString().slice(0, 8)}.${String(time.getMilliseconds()).padStart(3, "0")}`;
}

function rowOf(
  paint: (text: string) => string,
  time: string,
  what: string,
  sandbox: string,
  run: string,
  reason: string,
): string {
  const { time: t, what: w, sandbox: s, run: r } = COLUMNS;
  return `${time.padEnd(t)}  ${paint(what.padEnd(w))}  ${sandbox.padEnd(s)}  ${run.padEnd(r)}  ${reason}`.trimEnd();
}
