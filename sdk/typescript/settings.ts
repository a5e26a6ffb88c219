// Which mesh to connect to, and as whom: from options, the environment, or the file of the mesh that is up here.
import { homedir } from "node:os";
import { join, resolve } from "node:path";
import * as v from "valibot";
import {
  CanceledError,
  check,
  DeadlineError,
  errnoOf,
  InvalidRequestError,
} from "../../broker/contract/index.ts";
import { type Credentials, identityOf, parseCreds } from "../../broker/credentials/index.ts";
import { realPath } from "../../broker/credentials/real-path.ts";
import { invalid, nothingElse } from "./arguments.ts";
import { NoMeshError } from "./errors.ts";
import { type Patience, readFileText, readText } from "./files/local-text.ts";

/** `$SANDMESH_HOME/mesh.json`: written by `sandmesh up`, there only while that mesh is up. */
export const MeshFile = v.object({
  url: v.pipe(v.string(), v.minLength(1), v.description("NATS URL, such as nats://127.0.0.1:4222")),
  credentials: v.pipe(v.string(), v.minLength(1), v.description("Absolute path of a .creds file")),
});
export type MeshFile = v.InferOutput<typeof MeshFile>;

export interface SettingsOptions {
  /** NATS URL, or several with commas between them; default SANDMESH_URL, then the mesh that is up here. */
  url?: string;
  /** Path of a .creds file, or its text; default SANDMESH_CREDS (a path), then the mesh that is up here. */
  credentials?: string;
  /** Path of a PEM file, or its text: the CA that signed the server's certificate, and no other is trusted then. TLS is
   * required. Default SANDMESH_CA (a path), then the CAs that the runtime trusts. */
  ca?: string;
  /** Default: what the credential says. */
  tenant?: string;
  /** Default: what the credential says. */
  user?: string;
}

/** Plain data, so that it can be handed to the renewing thread. */
export interface Settings {
  urls: string[];
  /** Text of a .creds file, or its absolute path: then it is read at each connect, so that a renewed one takes effect. */
  credentials: string;
  /** PEM. */
  ca?: string;
  tenant: string;
  user: string;
}

/** Where a one-machine mesh keeps its state: `SANDMESH_HOME`, or `$XDG_STATE_HOME/sandmesh`, or
 * `~/.local/state/sandmesh`; the folder itself, whatever links lead there. Throws InvalidRequestError where its name is no
 * UTF-8, since another folder's would be read for it. */
export function sandmeshHome(env: NodeJS.ProcessEnv = process.env): string {
  const base = env.XDG_STATE_HOME || join(homedir(), ".local", "state");
  const home = realPath(env.SANDMESH_HOME || join(base, "sandmesh"));
  if (!home.includes("\u{fffd}")) return home;
  const message = `the mesh's folder ${home} must be named in UTF-8; SANDMESH_HOME names another`;
  throw new InvalidRequestError(message, { field: "SANDMESH_HOME" });
}

/** What says that the mesh's state is there, in words. */
export function homeSource(env: NodeJS.ProcessEnv = process.env): string {
  if (env.SANDMESH_HOME) return "SANDMESH_HOME";
  return env.XDG_STATE_HOME
    ? "below XDG_STATE_HOME; SANDMESH_HOME names another"
    : "the default; SANDMESH_HOME names another";
}

export const MESH_FILE = "mesh.json";

export function meshFilePath(env: NodeJS.ProcessEnv = process.env): string {
  return join(sandmeshHome(env), MESH_FILE);
}

/** Throws NoMeshError where nothing says which mesh, InvalidRequestError where what says it is malformed, CanceledError
 * and DeadlineError where the end of a pipe does not come as long as there is patience. */
export async function resolveSettings(
  options: SettingsOptions = {},
  env: NodeJS.ProcessEnv = process.env,
  patience: Patience = {},
): Promise<Settings> {
  const {
    url: optionUrl,
    credentials: optionCredentials,
    ca: optionCa,
    tenant: asTenant,
    user: asUser,
    ...rest
  } = options;
  nothingElse(rest);
  for (const [field, value] of Object.entries(options))
    if (typeof value !== "string" && value !== undefined) throw invalid(field, "must be text");
  const givenUrl = optionUrl ?? (env.SANDMESH_URL || undefined);
  const givenCredentials = optionCredentials ?? (env.SANDMESH_CREDS || undefined);
  const file = givenUrl === undefined || givenCredentials === undefined ? readMeshFile(env) : undefined;
  const url = givenUrl ?? file?.url;
  const credentials = givenCredentials ?? file?.credentials;
  if (url === undefined || credentials === undefined) throw noMesh(url, env);

  const [text, isLasting] = await textOfCredentials(credentials, patience);
  const identity = identityOf(parseCreds(text).jwt);
  const tenant = asTenant ?? identity.tenant;
  const user = asUser ?? identity.user;
  if (tenant === undefined || user === undefined) {
    throw new InvalidRequestError(
      `the credential is a ${identity.role}'s, which names no tenant and user: a user's is needed`,
      { field: "credentials" },
    );
  }
  const urls = url.split(",").map((each) => each.trim());
  const kept = isLasting ? resolve(credentials) : text;
  const ca = optionCa ?? (env.SANDMESH_CA || undefined);
  return {
    urls,
    credentials: kept,
    ...(ca === undefined ? {} : { ca: await readCa(ca, patience) }),
    tenant,
    user,
  };
}

function noMesh(url: string | undefined, env: NodeJS.ProcessEnv): NoMeshError {
  const path = meshFilePath(env);
  return url === undefined
    ? new NoMeshError(
        `no mesh is up here (no ${path}): run \`sandmesh up\`, or set SANDMESH_URL and SANDMESH_CREDS`,
      )
    : new NoMeshError(`no credentials for ${url}: set SANDMESH_CREDS to the path of a .creds file`);
}

function readMeshFile(env: NodeJS.ProcessEnv): MeshFile | undefined {
  const path = meshFilePath(env);
  let text: string;
  try {
    text = readFileText(path, { field: "mesh", atMostKib: CREDS_KIB });
  } catch (error) {
    if (errnoOf(error) === "ENOENT") return undefined;
    throw new NoMeshError(`${path} cannot be read`, { cause: error });
  }
  try {
    return check(MeshFile, JSON.parse(text));
  } catch (cause) {
    throw new NoMeshError(`${path} is damaged: run \`sandmesh down\` and \`sandmesh up\``, { cause });
  }
}

const isText = (given: string): boolean => given.includes("-----BEGIN");

/** What is larger is no such file, and perhaps has no end. */
const CREDS_KIB = 64;
const CA_KIB = 1024;

/** Of what went wrong with a file: whether it needs no other words. */
const saysItself = (error: unknown): boolean =>
  error instanceof InvalidRequestError || error instanceof CanceledError || error instanceof DeadlineError;

/** Of a PEM's text or path. */
async function readCa(ca: string, patience: Patience): Promise<string> {
  let text = ca;
  try {
    if (!isText(ca)) [text] = await readText(ca, { field: "ca", atMostKib: CA_KIB }, patience);
  } catch (cause) {
    if (saysItself(cause)) throw cause;
    throw new InvalidRequestError(`ca: the file ${ca} cannot be read`, { field: "ca", cause });
  }
  if (text.includes("-----BEGIN CERTIFICATE-----")) return text;
  throw invalid("ca", "must be the path of a file of PEM certificates, or its text");
}

const CREDENTIALS = { field: "credentials", atMostKib: CREDS_KIB };

const unreadable = (credentials: string, cause: unknown): unknown =>
  saysItself(cause)
    ? cause
    : new InvalidRequestError(`credentials: the file ${credentials} cannot be read`, {
        field: "credentials",
        cause,
      });

/** A .creds file's text, given itself or by its path, and whether the file may be read again. Throws as `readCredentials`. */
async function textOfCredentials(
  credentials: string,
  patience: Patience,
): Promise<[text: string, isLasting: boolean]> {
  if (isText(credentials)) return [credentials, false];
  try {
    return await readText(credentials, CREDENTIALS, patience);
  } catch (cause) {
    throw unreadable(credentials, cause);
  }
}

/** Of a .creds file's text, or the path of one that may be read again. Throws InvalidRequestError where there is no such
 * file, or it is none. */
export function readCredentials(credentials: string): Credentials {
  if (isText(credentials)) return parseCreds(credentials);
  let text: string;
  try {
    text = readFileText(credentials, CREDENTIALS);
  } catch (cause) {
    throw unreadable(credentials, cause);
  }
  return parseCreds(text);
}
