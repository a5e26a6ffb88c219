// context: a sandbox, or the pool, for the nats CLI.
import { mkdirSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import type { Command } from "commander";
import {
  NotFoundError,
  POOL_RESPONDER,
  poolSubject,
  replyPrefix,
  sandboxSubject,
} from "../../../broker/contract/index.ts";
import { formatCreds } from "../../../broker/credentials/index.ts";
import { writePrivate } from "../../../broker/credentials/private-file.ts";
import { meshFilePath, readCredentials, resolveSettings, type Settings } from "../../typescript/settings.ts";
import { defined } from "../../typescript/spec.ts";
import { globalsOf, withMesh } from "../context.ts";
import { EXIT } from "../exit.ts";

/** Where the nats CLI looks for contexts: `$XDG_CONFIG_HOME/nats/context`. */
function contextFolder(env: NodeJS.ProcessEnv): string {
  return join(env.XDG_CONFIG_HOME || join(homedir(), ".config"), "nats", "context");
}

export function addContext(program: Command): void {
  program
    .command("context")
    .argument("<sandbox>", "a sandbox's id, or `pool`")
    .summary("write a nats context, to talk with the nats CLI alone")
    .description(
      "Writes a context of the nats CLI with this mesh's address, credentials and the inbox prefix on which the\nsandbox (or `pool`) may answer, and prints its name.",
    )
    .action(async (id: string, _flags: unknown, command: Command) => {
      await withMesh(command, async ({ mesh, output }) => {
        const { url, creds } = globalsOf(command);
        const settings = resolveSettings(defined({ url, credentials: creds }));
        if (id !== POOL_RESPONDER && !(await mesh.list({})).some((each) => each.sandbox === id))
          throw new NotFoundError(`there is no sandbox ${id}`, { sandbox: id });
        const { name, ...context } = writeContext(settings, id);
        output.result({ context: name, ...context }, name);
        const subject =
          id === POOL_RESPONDER
            ? `${poolSubject(settings.tenant, "list")} '{}'`
            : `${sandboxSubject(settings.tenant, id, "sh")} 'echo hello'`;
        output.note(`nats --context ${name} req ${subject}`);
        return EXIT.ok;
      });
    });
}

/** The context's name, and what its file says. */
function writeContext(settings: Settings, responder: string) {
  const name = `sandmesh-${responder}`;
  const folder = contextFolder(process.env);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const credentials = join(folder, `${name}.creds`);
  writePrivate(credentials, formatCreds(readCredentials(settings.credentials)));
  const context = {
    description: `sandmesh: ${responder}, from ${meshFilePath()}`,
    url: settings.urls.join(","),
    creds: credentials,
    inbox_prefix: replyPrefix(settings.tenant, responder, settings.user),
  };
  writePrivate(join(folder, `${name}.json`), `${JSON.stringify(context, null, 2)}\n`);
  return { name, ...context };
}
