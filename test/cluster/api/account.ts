// Who the provider is where it is not the cluster's administrator: a service account of its namespace, by a token in a file.
import { createSign } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { until } from "../../../broker/server/testing.ts";
import { CLUSTER_DIR } from "../programs.ts";
import { apply, kubectl } from "./cluster.ts";

const ISSUER = "https://kubernetes.default.svc";
/** The API server takes a token for so long after its end. */
const LEEWAY_S = 60;

export class Account implements Disposable {
  /** Reads the token from its file. */
  readonly kubeconfig: string;
  readonly #folder = mkdtempSync(join(tmpdir(), "sandmesh-account-"));
  readonly #clusters: { name: string }[];

  private constructor(clusters: { name: string }[]) {
    this.#clusters = clusters;
    this.kubeconfig = this.kubeconfigWith({ tokenFile: join(this.#folder, "token") });
  }

  static async open(): Promise<Account> {
    const { clusters } = JSON.parse(
      await kubectl(["config", "view", "--raw", "--minify", "--flatten", "-o", "json"]),
    );
    return new Account(clusters);
  }

  kubeconfigWith(user: { tokenFile: string } | { token: string }): string {
    const path = join(this.#folder, `kubeconfig-${Object.keys(user)[0]}`);
    const config = {
      apiVersion: "v1",
      kind: "Config",
      clusters: this.#clusters,
      contexts: [{ name: "t", context: { cluster: this.#clusters[0]?.name, user: "t" } }],
      users: [{ name: "t", user }],
      "current-context": "t",
    };
    writeFileSync(path, JSON.stringify(config), { mode: 0o600 });
    return path;
  }

  hold(token: string): void {
    writeFileSync(join(this.#folder, "token"), token, { mode: 0o600 });
  }

  [Symbol.dispose](): void {
    rmSync(this.#folder, { recursive: true });
  }
}

/** Makes the service account `pool`, which may do everything with the namespace's pods. */
export async function makeAccount(namespace: string): Promise<void> {
  await kubectl(["-n", namespace, "create", "serviceaccount", "pool"]);
  await kubectl(["-n", namespace, "create", "role", "pool", "--verb=*", "--resource=pods"]);
  const account = `--serviceaccount=${namespace}:pool`;
  await kubectl(["-n", namespace, "create", "rolebinding", "pool", "--role=pool", account]);
}

/** An hour's, from the API server. */
export const tokenOf = async (namespace: string): Promise<string> =>
  (await kubectl(["-n", namespace, "create", "token", "pool"])).trim();

/** One that is refused after `lifeS` seconds. The API server gives none for less than ten minutes, so this one is signed
 * here with its key. */
export async function shortTokenOf(namespace: string, lifeS: number): Promise<string> {
  const path = "jsonpath={.metadata.uid}";
  const uid = await kubectl(["-n", namespace, "get", "serviceaccount", "pool", "-o", path]);
  const now = Math.floor(Date.now() / 1000);
  const claims = {
    iss: ISSUER,
    aud: [ISSUER],
    sub: `system:serviceaccount:${namespace}:pool`,
    iat: now - 600,
    nbf: now - 600,
    exp: now + lifeS - LEEWAY_S,
    "kubernetes.io": { namespace, serviceaccount: { name: "pool", uid } },
  };
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString("base64url");
  const signed = `${part({ alg: "RS256", typ: "JWT" })}.${part(claims)}`;
  const key = readFileSync(join(CLUSTER_DIR, "pki", "sa.key"), "utf8");
  return `${signed}.${createSign("RSA-SHA256").update(signed).sign(key, "base64url")}`;
}

/** The API server's own throttle for what the account creates, with no place for anything. */
export class Throttle implements AsyncDisposable {
  readonly #name: string;

  private constructor(name: string) {
    this.#name = name;
  }

  static async open(namespace: string): Promise<Throttle> {
    const apiVersion = "flowcontrol.apiserver.k8s.io/v1";
    const metadata = { name: namespace };
    const limited = {
      nominalConcurrencyShares: 0,
      borrowingLimitPercent: 0,
      limitResponse: { type: "Reject" },
    };
    const spec = { type: "Limited", limited };
    await apply({ apiVersion, kind: "PriorityLevelConfiguration", metadata, spec });
    const serviceAccount = { name: "pool", namespace };
    await apply({
      apiVersion,
      kind: "FlowSchema",
      metadata,
      spec: {
        matchingPrecedence: 500,
        priorityLevelConfiguration: { name: namespace },
        rules: [
          {
            subjects: [{ kind: "ServiceAccount", serviceAccount }],
            resourceRules: [
              { apiGroups: [""], resources: ["pods"], verbs: ["create"], namespaces: [namespace] },
            ],
          },
        ],
      },
    });
    const path = 'jsonpath={.status.conditions[?(@.type=="Dangling")].status}';
    const inForce = () =>
      kubectl(["get", "flowschema", namespace, "-o", path]).then((said) => said === "False");
    await until("the throttle is in force", inForce, 30_000, 50);
    return new Throttle(namespace);
  }

  async loosen(): Promise<void> {
    const patch = JSON.stringify({ spec: { limited: { nominalConcurrencyShares: 30 } } });
    await kubectl(["patch", "prioritylevelconfiguration", this.#name, "--type=merge", "-p", patch]);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await kubectl(["delete", "flowschema,prioritylevelconfiguration", this.#name]);
  }
}
