// Where NATS is, as this machine reaches it.
import { InvalidRequestError } from "../../../../broker/contract/index.ts";

/** `host:port`, also as a nats:// or tls:// URL. Throws InvalidRequestError. */
export function parseAddress(url: string): { host: string; port: number } {
  const match = url.match(/^(?:(?:nats|tls):\/\/)?(?:\[([0-9a-fA-F:]+)\]|([^:/[\]]+)):(\d{1,5})\/?$/);
  const host = match?.[1] ?? match?.[2];
  if (match === null || host === undefined) {
    throw new InvalidRequestError(`natsUrl must be host:port, not ${url}`, { field: "natsUrl" });
  }
  return { host, port: Number(match[3]) };
}
