// The nats CLI's contexts: files of its own configuration folder.
import { mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { replyPrefix, SANDBOX_PREFIX } from "../../broker/contract/index.ts";
import { formatCreds } from "../../broker/credentials/index.ts";
import { writePrivate } from "../../broker/credentials/private-file.ts";
import { meshFilePath, readCredentials, type Settings } from "../typescript/settings.ts";

/** Ends of the names of a context's files. */
const KINDS = ["json", "creds", "ca"] as const;
type Kind = (typeof KINDS)[number];

const nameOf = (responder: string): string => `sandmesh-${responder}`;

/** Where the nats CLI looks for contexts: `$XDG_CONFIG_HOME/nats/context`, else below the home that the system's list of
 * users says, whatever HOME says. */
function contextFolder(): string {
  return join(process.env.XDG_CONFIG_HOME || join(listedHome() ?? homedir(), ".config"), "nats", "context");
}

/** Of this process's user in /etc/passwd, as the nats CLI reads it; Bun's `userInfo` answers HOME. */
function listedHome(): string | undefined {
  const uid = String(process.getuid?.());
  const entries = textOf("/etc/passwd")?.split("\n") ?? [];
  const entry = entries.map((line) => line.split(":")).find((fields) => fields[2] === uid);
  return entry?.[5] || undefined;
}

function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return undefined;
  }
}

/** Writes the context of a sandbox, or of `pool`: its name, the path of its file, and what that says. */
export function writeContext(settings: Settings, responder: string) {
  const name = nameOf(responder);
  const folder = contextFolder();
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const fileOf = (kind: Kind): string => join(folder, `${name}.${kind}`);
  const [path, credentials, ca] = [fileOf("json"), fileOf("creds"), fileOf("ca")];
  writePrivate(credentials, formatCreds(readCredentials(settings.credentials)));
  if (settings.ca !== undefined) writePrivate(ca, settings.ca);
  const context = {
    description: `sandmesh: ${responder}, ${origin()}`,
    url: settings.urls.join(","),
    creds: credentials,
    ...(settings.ca === undefined ? {} : { ca }),
    inbox_prefix: replyPrefix(settings.tenant, responder, settings.user),
  };
  writePrivate(path, `${JSON.stringify(context, null, 2)}\n`);
  return { name, path, ...context };
}

const origin = (): string => `from ${meshFilePath()}`;

/** Removes the contexts of these sandboxes, which nobody answers any more. */
export function forgetContexts(sandboxes: readonly string[]): void {
  const folder = contextFolder();
  for (const sandbox of sandboxes.filter((id) => id.startsWith(SANDBOX_PREFIX) && !id.includes("/")))
    for (const kind of KINDS) rmSync(join(folder, `${nameOf(sandbox)}.${kind}`), { force: true });
}

/** Removes those of all sandboxes of the mesh of this machine, which has ended. */
export function forgetContextsHere(): void {
  const folder = contextFolder();
  let names: string[];
  try {
    names = readdirSync(folder);
  } catch {
    return;
  }
  const written = names.flatMap((name) => /^sandmesh-(sb-[a-z0-9-]+)\.json$/.exec(name)?.[1] ?? []);
  const ours = JSON.stringify(`, ${origin()}`).slice(1);
  forgetContexts(written.filter((id) => textOf(join(folder, `${nameOf(id)}.json`))?.includes(ours)));
}
