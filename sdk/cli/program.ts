// The client half of the `sandmesh` program; deploy/sandmesh.ts adds what runs a mesh.
import { Command } from "commander";
import { addCompletion } from "./commands/completion.ts";
import { addCp } from "./commands/cp.ts";
import { addLogs } from "./commands/logs.ts";
import { addContext } from "./commands/nats.ts";
import { addExec, addRun, addShell } from "./commands/run.ts";
import { addAcquire, addPs, addRelease, addRenew } from "./commands/sandboxes.ts";
import { EXIT } from "./exit.ts";

/** A program with the client's commands. Wrong usage ends the process with 2. */
export function createProgram(): Command {
  const program = new Command("sandmesh")
    .description("Stateful sandboxes in bursts, over NATS, from unmodified images.")
    .option("--json", "print one line of JSON instead of text")
    .option("-q, --quiet", "print results only")
    .option("--url <url>", "NATS URL; default SANDMESH_URL, then the mesh that is up here")
    .option("--creds <file>", "credentials; default SANDMESH_CREDS, then the mesh that is up here")
    .showHelpAfterError("(see sandmesh help)")
    .exitOverride((error) => process.exit(error.exitCode === 0 ? EXIT.ok : EXIT.usage));
  program.commandsGroup("Commands in sandboxes:");
  addRun(program);
  addExec(program);
  addShell(program);
  addCp(program);
  addLogs(program);
  program.commandsGroup("Sandboxes:");
  addAcquire(program);
  addPs(program);
  addRenew(program);
  addRelease(program);
  program.commandsGroup("Other:");
  addContext(program);
  addCompletion(program);
  return program;
}
