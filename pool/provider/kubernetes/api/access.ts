// How the API server is reached and as whom: kubeconfig, or the service account of the pod we run in. Credentials that
// expire (tokens in files, exec plugins) are read anew.

import { existsSync } from "node:fs";
import { Agent } from "node:http";
import type { RequestOptions } from "node:https";
import { homedir } from "node:os";
import { delimiter, dirname, join, resolve } from "node:path";
import { KubeConfig } from "@kubernetes/client-node";
import { YAML } from "bun";
import * as v from "valibot";
import { InvalidRequestError, ProviderError } from "../../../../broker/contract/index.ts";
import { readBounded } from "../../../../broker/credentials/bounded-file.ts";

/** Kubelet renews a service account's token when 80% of its hour are over; a minute is early enough. */
const FRESH_MS = 60_000;
const SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount/token";

export type Credentials = Pick<RequestOptions, "ca" | "cert" | "key" | "headers" | "agent" | "auth"> &
  Pick<RequestOptions, "rejectUnauthorized" | "servername">;

export interface Access {
  readonly server: URL;
  /** Of the kubeconfig's context, or of the pod we run in. */
  readonly namespace?: string | undefined;
  /** Whether the agent must be the configuration's own: it leads through a proxy. */
  readonly proxied: boolean;
  /** `anew`: the last ones were refused. Throws ProviderError. */
  credentials(anew?: boolean): Promise<Credentials>;
  /** Ends the connections through a proxy. */
  close(): void;
}

/** Whether a cluster is meant though no settings say so: $KUBECONFIG, or the account of the pod we run in. */
export const clusterIsNamed = (): boolean => Boolean(process.env.KUBECONFIG) || existsSync(SERVICE_ACCOUNT);

/** Throws InvalidRequestError where there is no usable configuration. */
export function openAccess(file: string | undefined, context: string | undefined): Access {
  let loaded = load(file, context);
  const cluster = loaded.config.getCurrentCluster();
  if (cluster === null) {
    throw new InvalidRequestError("the kubeconfig names no cluster", { field: "kubeconfig" });
  }
  if (!URL.canParse(cluster.server)) {
    const message = `the server of the kubeconfig's cluster ${cluster.name} is no address such as https://host:6443`;
    throw new InvalidRequestError(message, { field: "kubeconfig" });
  }
  let known: { at: number; credentials: Promise<Credentials> } | undefined;
  return {
    server: new URL(cluster.server),
    namespace: loaded.config.getContextObject(loaded.config.getCurrentContext())?.namespace,
    proxied: cluster.proxyUrl !== undefined && cluster.proxyUrl !== "",
    credentials(anew = false) {
      const now = performance.now();
      if (known === undefined || anew || now - known.at > FRESH_MS) {
        // Refused, nothing that was kept is believed: the file may name others by now, and plugins have caches.
        if (anew) {
          const before = loaded;
          loaded = reload(file, context, before);
          if (loaded !== before) before.agent?.destroy();
        }
        const reading = read(loaded);
        known = { at: now, credentials: reading };
        // A failure is not kept.
        reading.catch(() => {
          if (known?.credentials === reading) known = undefined;
        });
      }
      return known.credentials;
    },
    close() {
      loaded.agent?.destroy();
    },
  };
}

/** What it says, without the name of its class. */
const wordsOf = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause));

interface Loaded {
  config: KubeConfig;
  /** Of the current user, where it has its token in a file. */
  tokenFile: string | undefined;
  /** Set with the first credentials. */
  agent: Agent | undefined;
}

function load(file: string | undefined, context: string | undefined): Loaded {
  const config = new KubeConfig();
  try {
    const inPod = file === undefined && !process.env.KUBECONFIG && existsSync(SERVICE_ACCOUNT);
    const files = inPod ? [] : readFiles(file);
    if (inPod) config.loadFromCluster();
    else if (files.length === 0) config.loadFromDefault();
    else loadAll(config, files);
    if (context !== undefined) config.setCurrentContext(context);
    const own: unknown = config.getCurrentUser()?.authProvider?.config?.tokenFile;
    const tokenFile = typeof own === "string" ? own : tokenFileOf(config, files);
    return { config, agent: undefined, tokenFile };
  } catch (cause) {
    if (cause instanceof InvalidRequestError) throw cause;
    const message = `the kubeconfig cannot be read: ${wordsOf(cause)}`;
    throw new InvalidRequestError(message, { field: "kubeconfig", cause });
  }
}

/** While a file is being written anew, what it was before will do. */
function reload(file: string | undefined, context: string | undefined, before: Loaded): Loaded {
  try {
    return load(file, context);
  } catch {
    return before;
  }
}

const Users = v.object({
  users: v.optional(
    v.array(v.object({ name: v.string(), user: v.nullish(v.object({ tokenFile: v.optional(v.string()) })) })),
    [],
  ),
});

/** The client library's errors for what is none quote it, or speak of themselves. */
const AnyKubeconfig = v.object({
  clusters: v.nullish(v.array(v.unknown())),
  contexts: v.nullish(v.array(v.unknown())),
  users: v.nullish(v.array(v.unknown())),
});

interface Kubeconfig {
  folder: string;
  text: string;
  content: unknown;
}

/** The one given, or $KUBECONFIG's, or the home's where it is there. The library has no limit, and would read them once more
 * for what it does not know; what came by a pipe does not come again. */
function readFiles(given: string | undefined): Kubeconfig[] {
  const own = join(homedir(), ".kube", "config");
  const named = process.env.KUBECONFIG ? process.env.KUBECONFIG.split(delimiter).filter(Boolean) : undefined;
  const paths = given !== undefined ? [given] : (named ?? [own].filter((path) => existsSync(path)));
  return paths.map((path) => {
    const text = readBounded(path, "kubeconfig");
    return { folder: dirname(path), text, content: contentOf(path, text) };
  });
}

function contentOf(path: string, text: string): unknown {
  const refused = (why: string) =>
    new InvalidRequestError(`the kubeconfig ${path} ${why}`, { field: "kubeconfig" });
  if (text.trim() === "") throw refused("is empty");
  let content: unknown;
  try {
    content = YAML.parse(text);
  } catch {
    throw refused("is not YAML");
  }
  if (Array.isArray(content) || !v.is(AnyKubeconfig, content)) throw refused("is YAML, but no kubeconfig");
  return content;
}

/** As the library's `loadFromDefault` does: a later one's context counts. */
function loadAll(config: KubeConfig, files: readonly Kubeconfig[]): void {
  for (const [i, { folder, text }] of files.entries()) {
    const each = i === 0 ? config : new KubeConfig();
    try {
      each.loadFromString(text);
    } catch (cause) {
      // Of another mind than Bun's YAML, the library's quotes the text from the second line on.
      throw new Error(wordsOf(cause).split("\n", 1)[0], { cause });
    }
    each.makePathsAbsolute(folder);
    if (i > 0) config.mergeConfig(each);
  }
}

/** clientcmd's `tokenFile`, which the client library does not know. */
function tokenFileOf(config: KubeConfig, files: readonly Kubeconfig[]): string | undefined {
  for (const { folder, content } of files) {
    const parsed = v.safeParse(Users, content);
    if (!parsed.success) continue;
    const user = parsed.output.users.find(({ name }) => name === config.getCurrentUser()?.name);
    if (user?.user?.tokenFile !== undefined) return resolve(folder, user.user.tokenFile);
  }
  return undefined;
}

async function read(loaded: Loaded): Promise<Credentials> {
  const { config, tokenFile } = loaded;
  const options: RequestOptions = {};
  try {
    await config.applyToHTTPSOptions(options);
    // The library makes one that leads through the proxy each time, and that keeps no connection.
    if (loaded.agent === undefined && options.agent instanceof Agent) {
      loaded.agent = Object.assign(options.agent, { keepAlive: true });
    }
    options.agent = loaded.agent;
    if (tokenFile === undefined) return options;
    const token = readBounded(tokenFile, "tokenFile").trim();
    return { ...options, headers: { ...options.headers, Authorization: `Bearer ${token}` } };
  } catch (cause) {
    const message = `no credentials for the API server: ${wordsOf(cause)}`;
    throw new ProviderError(message, { reason: "unauthorized", cause });
  }
}
