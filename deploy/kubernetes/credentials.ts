// The Secrets that the chart expects, made from the keys that whoever runs the mesh keeps: the operator's keys never
// enter the cluster.
import { chmodSync, existsSync, mkdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { InvalidRequestError, NotFoundError } from "../../broker/contract/index.ts";
import { formatCreds } from "../../broker/credentials/index.ts";
import { writePrivate } from "../../broker/credentials/private-file.ts";
import { keepKeys, readKeys } from "../../broker/server/keys-file.ts";
import { keyRingOf, type OperatorKeys, signOperatorJwts } from "../../broker/server/operator.ts";
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
  /** Told what else is to be done. */
  log?: (line: string) => void;
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

/** The mesh's keys cannot be made again. */
const MEND = "put a copy of it back";
/** The kubelet brings the Secrets to the servers; they must be told to read them. A restart would do it, too, but where their
 * disk is an emptyDir it would end all sandboxes. */
const reload = ({ namespace, release }: CredentialsOptions): string =>
  `these keys know operators now, who alone may drain the pool. For a mesh that runs apply the Secrets, and reload each NATS server a minute later: kubectl -n ${namespace} exec ${release}-nats-0 -- /nats-server --signal reload=1`;

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
  const { release, namespace, tls, hosts, log } = options;
  const stateDir = openState(options.stateDir);
  const { keys, added } = keepKeys(join(stateDir, KEYS), MEND);
  if (added) log?.(reload(options));
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
  /** One that may also `drain` the pool. */
  operator?: boolean;
  /** Left out: for ever. */
  ttlMs?: number;
}

/** The text of a .creds file of a trainer, or of who runs the pool. Throws NotFoundError where no keys are kept there, and
 * InvalidRequestError where they are of before there were operators: no server would know the credential. */
export function mintUser({ stateDir, operator = false, ttlMs, ...who }: UserOptions): string {
  const found = readKeys(join(resolve(stateDir), KEYS), MEND);
  if (found === undefined) {
    throw new NotFoundError(
      `there are no keys in ${stateDir}; \`sandmesh kubernetes credentials\` makes them`,
    );
  }
  if (operator && found.added) {
    throw new InvalidRequestError(
      `the keys in ${stateDir} know no operators yet: apply what \`sandmesh kubernetes credentials\` prints, and reload NATS`,
      { field: "operator" },
    );
  }
  const ring = keyRingOf(found.keys);
  const asked = { ...who, ...(ttlMs === undefined ? {} : { ttlMs }) };
  return formatCreds(operator ? ring.mintOperator(asked) : ring.mintUser(asked));
}
