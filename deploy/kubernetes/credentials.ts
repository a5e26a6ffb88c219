// The Secrets that the chart expects, made from the keys that whoever runs the mesh keeps: the operator's keys never
// enter the cluster.
import { chmodSync, existsSync, mkdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { InvalidRequestError, NotFoundError, toSandmeshError } from "../../broker/contract/index.ts";
import { formatCreds } from "../../broker/credentials/index.ts";
import { writePrivate } from "../../broker/credentials/private-file.ts";
import {
  createOperatorKeys,
  keyRingOf,
  type OperatorKeys,
  parseOperatorKeys,
  signOperatorJwts,
} from "../../broker/server/operator.ts";
import { makeServerCertificate } from "./certificates.ts";

export interface CredentialsOptions {
  /** Where the keys are kept, made at the first call: whoever has it owns the mesh. */
  stateDir: string;
  /** The release's name, and its namespace. */
  release: string;
  namespace: string;
  tls: boolean;
  /** More names and addresses by which clients reach NATS. */
  hosts: readonly string[];
}

export interface Secret {
  apiVersion: "v1";
  kind: "Secret";
  metadata: { name: string; namespace: string; labels: Record<string, string> };
  type: string;
  stringData: Record<string, string>;
}

const KEYS = "keys.json";
const ROUTE = "route-password";

function openState(folder: string): string {
  const stateDir = resolve(folder);
  mkdirSync(stateDir, { recursive: true, mode: 0o700 });
  chmodSync(stateDir, 0o700);
  return stateDir;
}

function kept(path: string, make: () => string): string {
  if (!existsSync(path)) writePrivate(path, make());
  return readFileSync(path, "utf8");
}

const keysIn = (stateDir: string): OperatorKeys => {
  const path = join(stateDir, KEYS);
  return keysOf(
    path,
    kept(path, () => JSON.stringify(createOperatorKeys())),
  );
};

/** Throws InvalidRequestError that names the file: the mesh's keys cannot be made again, only put back. */
function keysOf(path: string, text: string): OperatorKeys {
  try {
    return parseOperatorKeys(text);
  } catch (cause) {
    const why = toSandmeshError(cause).message;
    throw new InvalidRequestError(`${path} is damaged (${why}): put a copy of it back`, { cause });
  }
}

/** nats-server's settings of operator and accounts; all public. */
function authConf(keys: OperatorKeys): string {
  const jwts = signOperatorJwts(keys);
  return [
    `operator: ${jwts.operator}`,
    `system_account: ${jwts.systemKey}`,
    "resolver: MEMORY",
    `resolver_preload: {${jwts.accountKey}: ${jwts.account}, ${jwts.systemKey}: ${jwts.system}}`,
    "",
  ].join("\n");
}

/** `<release>-nats`, `<release>-pool` and, with TLS, `<release>-nats-tls`. The same keys give the same mesh: what runs
 * goes on, whoever has a credential keeps it. Throws UnsupportedError without openssl, InvalidRequestError for damaged
 * keys. */
export function meshSecrets(options: CredentialsOptions): Secret[] {
  const { release, namespace, tls, hosts } = options;
  const stateDir = openState(options.stateDir);
  const keys = keysIn(stateDir);
  const ring = keyRingOf(keys);
  const secret = (name: string, stringData: Record<string, string>, type = "Opaque"): Secret => ({
    apiVersion: "v1",
    kind: "Secret",
    metadata: { name: `${release}-${name}`, namespace, labels: { "app.kubernetes.io/name": "sandmesh" } },
    type,
    stringData,
  });
  const nats = `${release}-nats`;
  const names = [
    "localhost",
    ...["", `.${namespace}`, `.${namespace}.svc`, `.${namespace}.svc.cluster.local`].map(
      (rest) => nats + rest,
    ),
    `*.${nats}-headless.${namespace}.svc`,
  ];
  const server = tls ? makeServerCertificate(stateDir, [...names, ...hosts]) : undefined;
  const password = kept(join(stateDir, ROUTE), () => crypto.randomUUID().replaceAll("-", ""));
  const secrets = [
    secret("nats", { "auth.conf": authConf(keys), [ROUTE]: password }),
    secret("pool", {
      "pool.creds": formatCreds(ring.mintPool()),
      "keys.json": ring.format(),
      ...(server === undefined ? {} : { "ca.crt": server.ca }),
    }),
  ];
  if (server !== undefined) {
    const data = { "tls.crt": server.certificate, "tls.key": server.key, "ca.crt": server.ca };
    secrets.push(secret("nats-tls", data, "kubernetes.io/tls"));
  }
  return secrets;
}

export interface UserOptions {
  stateDir: string;
  tenant: string;
  user: string;
  /** Left out: for ever. */
  ttlMs?: number;
}

/** The text of a trainer's .creds file. Throws NotFoundError where no keys are kept there. */
export function mintUser({ stateDir, tenant, user, ttlMs }: UserOptions): string {
  const path = join(resolve(stateDir), KEYS);
  if (!existsSync(path)) {
    throw new NotFoundError(
      `there are no keys in ${stateDir}; \`sandmesh kubernetes credentials\` makes them`,
    );
  }
  const ring = keyRingOf(keysOf(path, readFileSync(path, "utf8")));
  return formatCreds(ring.mintUser({ tenant, user, ...(ttlMs === undefined ? {} : { ttlMs }) }));
}
