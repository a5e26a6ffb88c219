// context: a sandbox, or the pool, for the nats CLI.
import type { Command } from "commander";
import {
  NotFoundError,
  POOL_RESPONDER,
  poolSubject,
  sandboxSubject,
} from "../../../broker/contract/index.ts";
import { withMesh } from "../context.ts";
import { EXIT } from "../exit.ts";
import { forgetContextsBut, writeContext } from "../nats-contexts.ts";
import { dim } from "../output.ts";

export function addContext(program: Command): void {
  program
    .command("context")
    .argument("<sandbox or pool>", "a sandbox's id, or `pool`")
    .summary("write a nats context, to talk with the nats CLI alone")
    .description(
      "Writes a context of the nats CLI with this mesh's address, credentials and the inbox prefix on which the sandbox (or `pool`) may answer, and prints its name. It is removed when the sandbox is released by this program, or `ps` finds that it is gone, and by `down` of this machine's mesh. Each looks for contexts where the nats CLI does: one written under another XDG_CONFIG_HOME stays.",
    )
    .action(async (id: string, _flags: unknown, command: Command) => {
      await withMesh(command, async ({ mesh, settings, output }) => {
        // Refuses what is no id, before anything is asked.
        const shell = sandboxSubject(settings.tenant, id, "sh");
        const there = (await mesh.list()).map(({ sandbox }) => sandbox);
        forgetContextsBut(settings, there);
        if (id !== POOL_RESPONDER && !there.includes(id))
          throw new NotFoundError(`there is no sandbox ${id}`, { sandbox: id });
        const { name, ...context } = writeContext(settings, id);
        await output.result({ context: name, ...context }, name);
        const subject =
          id === POOL_RESPONDER ? `${poolSubject(settings.tenant, "list")} '{}'` : `${shell} 'echo hello'`;
        output.note(`nats --context ${name} req ${subject}`);
        output.note(
          dim(`for ${id} alone: where another is asked under it, the nats CLI waits, and says nothing`),
        );
        return EXIT.ok;
      });
    });
}
