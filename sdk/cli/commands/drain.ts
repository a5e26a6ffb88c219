// drain: for who runs the pool.
import { type Command, Option } from "commander";
import { withMesh } from "../context.ts";
import { EXIT } from "../exit.ts";
import { counted } from "../output.ts";

export function addDrain(program: Command): void {
  program
    .command("drain")
    .summary("stop new acquires of all tenants, as an operator")
    .description(
      "Stops new acquires, of all tenants; sandboxes that live live on. It lasts until `--off`, also through a restart of the pool. It needs an operator's credential (--creds): of the mesh of this machine that is operator.creds in its home (see `config`), of one on Kubernetes `kubernetes user --operator` makes it.",
    )
    .option("--off", "take acquires again")
    .addOption(new Option("--release-all", "and end all sandboxes, of all tenants").conflicts("off"))
    .action(async (flags: { off?: true; releaseAll?: true }, command: Command) => {
      await withMesh(command, async ({ mesh, output, signal }) => {
        const on = flags.off !== true;
        const answer = await mesh.drain({ on, releaseAll: flags.releaseAll === true, signal });
        const left = counted(answer.remaining, "sandbox");
        output.result(answer, answer.draining ? `draining, ${left} left` : `taking acquires, ${left}`);
        return EXIT.ok;
      });
    });
}
