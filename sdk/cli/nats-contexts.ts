// The nats CLI's contexts: files of its own configuration folder.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { POOL_RESPONDER, replyPrefix, SANDBOX_PREFIX } from "../../broker/contract/index.ts";
import { formatCreds, identityOf } from "../../broker/credentials/index.ts";
import { writePrivate } from "../../broker/credentials/private-file.ts";
import { MESH_FILE, meshFilePath, readCredentials, type Settings } from "../typescript/settings.ts";

/** Ends of the names of a context's files. */
const KINDS = ["json", "creds", "ca"] as const;
type Kind = (typeof KINDS)[number];

/** An operator's own is beside the user's: what may end everybody's sandboxes is not to be had by mistake. */
const nameOf = (responder: string, isOperator: boolean): string =>
  `sandmesh-${responder}${isOperator ? "-operator" : ""}`;

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

/** Writes the context of a sandbox, or of `pool`: its name, the path of its file, and what that says. A context of another
 * mesh stays: this one's name then has a mark of its mesh's behind it. */
export function writeContext(settings: Settings, responder: string) {
  const folder = contextFolder();
  const mesh = meshOf(settings);
  const credential = readCredentials(settings.credentials);
  const isOperator = identityOf(credential.jwt).role === "operator";
  const name = freeName(folder, nameOf(responder, isOperator), mesh);
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const fileOf = (kind: Kind): string => join(folder, `${name}.${kind}`);
  const [path, credentials, ca] = [fileOf("json"), fileOf("creds"), fileOf("ca")];
  writePrivate(credentials, formatCreds(credential));
  if (settings.ca !== undefined) writePrivate(ca, settings.ca);
  const context = {
    description: `sandmesh: ${responder}${FROM}${mesh}`,
    url: settings.urls.join(","),
    creds: credentials,
    ...(settings.ca === undefined ? {} : { ca }),
    inbox_prefix: replyPrefix(settings.tenant, responder, settings.user),
  };
  writePrivate(path, `${JSON.stringify(context, null, 2)}\n`);
  return { name, path, ...context };
}

const FROM = ", from ";
const OURS = new RegExp(`^sandmesh: (.*?)${FROM}(.*)$`);

/** What tells one mesh from another: the file of the one that is up here, which ends with it, or its address. */
function meshOf({ urls }: Settings): string {
  const address = urls.join(",");
  return textOf(meshFilePath())?.includes(JSON.stringify(address)) ? meshFilePath() : address;
}

/** Whose context it is, and of which mesh, where it is one of ours. */
function readContext(path: string): { responder: string; mesh: string; inbox: string } | undefined {
  try {
    const { description, inbox_prefix } = JSON.parse(readFileSync(path, "utf8"));
    const [, responder, mesh] = OURS.exec(description) ?? [];
    return responder === undefined || mesh === undefined
      ? undefined
      : { responder, mesh, inbox: String(inbox_prefix) };
  } catch {
    return undefined;
  }
}

function freeName(folder: string, name: string, mesh: string): string {
  const path = join(folder, `${name}.json`);
  const other = readContext(path)?.mesh;
  const ended = other?.endsWith(`/${MESH_FILE}`) === true && !existsSync(other);
  if (!existsSync(path) || other === mesh || ended) return name;
  return `${name}-${createHash("sha256").update(mesh).digest("hex").slice(0, 6)}`;
}

const remove = (folder: string, name: string): void => {
  for (const kind of KINDS) rmSync(join(folder, `${name}.${kind}`), { force: true });
};

/** Removes the contexts of these sandboxes, which nobody answers any more. */
export function forgetContexts(sandboxes: readonly string[]): void {
  for (const sandbox of sandboxes.filter((id) => id.startsWith(SANDBOX_PREFIX) && !id.includes("/")))
    for (const isOperator of [false, true]) remove(contextFolder(), nameOf(sandbox, isOperator));
}

/** Removes all contexts of the mesh of this machine, the pool's too: it has ended. What was written under another
 * XDG_CONFIG_HOME is not looked for. */
export function forgetContextsHere(): void {
  forget(({ mesh }) => mesh === meshFilePath());
}

/** Removes the contexts of the tenant's sandboxes that are not among these, which are all that there are. */
export function forgetContextsBut(settings: Settings, sandboxes: readonly string[]): void {
  const here = meshOf(settings);
  const there = new Set(sandboxes);
  forget(
    ({ mesh, responder, inbox }) =>
      mesh === here &&
      responder.startsWith(SANDBOX_PREFIX) &&
      !there.has(responder) &&
      // Of another tenant's sandboxes this list says nothing.
      inbox === replyPrefix(settings.tenant, responder, settings.user),
  );
}

function forget(which: (context: NonNullable<ReturnType<typeof readContext>>) => boolean): void {
  const folder = contextFolder();
  let names: string[];
  try {
    names = readdirSync(folder);
  } catch {
    return;
  }
  for (const name of names.flatMap((each) => WRITTEN.exec(each)?.[1] ?? [])) {
    const context = readContext(join(folder, `${name}.json`));
    if (context !== undefined && which(context)) remove(folder, name);
  }
}

const WRITTEN = new RegExp(`^(sandmesh-(?:${POOL_RESPONDER}|${SANDBOX_PREFIX})[a-z0-9-]*)\\.json$`);
