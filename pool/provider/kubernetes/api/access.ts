// How the API server is reached and as whom: kubeconfig, or the service account of the pod we run in. Credentials that
// expire (tokens in files, exec plugins) are read anew.
import { existsSync } from "node:fs";
import type { RequestOptions } from "node:https";
import { KubeConfig } from "@kubernetes/client-node";
import { InvalidRequestError, ProviderError } from "../../../../broker/contract/index.ts";

/** Kubelet renews a service account's token when 80% of its hour are over; a minute is early enough. */
const FRESH_MS = 60_000;
const SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount/token";

export type Credentials = Pick<RequestOptions, "ca" | "cert" | "key" | "headers" | "agent" | "auth"> &
  Pick<RequestOptions, "rejectUnauthorized" | "servername">;

export interface Access {
  readonly server: URL;
  /** Whether the agent must be the configuration's own: it leads through a proxy. */
  readonly proxied: boolean;
  /** `anew`: the last ones were refused. Throws ProviderError. */
  credentials(anew?: boolean): Promise<Credentials>;
}

/** Throws InvalidRequestError where there is no usable configuration. */
export function openAccess(file: string | undefined, context: string | undefined): Access {
  const config = new KubeConfig();
  try {
    if (file !== undefined) config.loadFromFile(file);
    else if (process.env.KUBECONFIG === undefined && existsSync(SERVICE_ACCOUNT)) config.loadFromCluster();
    else config.loadFromDefault();
    if (context !== undefined) config.setCurrentContext(context);
  } catch (cause) {
    const message = `the kubeconfig cannot be read: ${String(cause)}`;
    throw new InvalidRequestError(message, { field: "kubeconfig", cause });
  }
  const cluster = config.getCurrentCluster();
  if (cluster === null) {
    throw new InvalidRequestError("the kubeconfig names no cluster", { field: "kubeconfig" });
  }
  let known: { at: number; credentials: Promise<Credentials> } | undefined;
  return {
    server: new URL(cluster.server),
    proxied: cluster.proxyUrl !== undefined && cluster.proxyUrl !== "",
    credentials(anew = false) {
      const now = performance.now();
      if (known === undefined || anew || now - known.at > FRESH_MS) {
        const reading = read(config);
        known = { at: now, credentials: reading };
        // A failure is not kept.
        reading.catch(() => {
          if (known?.credentials === reading) known = undefined;
        });
      }
      return known.credentials;
    },
  };
}

async function read(config: KubeConfig): Promise<Credentials> {
  const options: RequestOptions = {};
  try {
    await config.applyToHTTPSOptions(options);
  } catch (cause) {
    const message = `no credentials for the API server: ${String(cause)}`;
    throw new ProviderError(message, { reason: "unauthorized", cause });
  }
  return options;
}
