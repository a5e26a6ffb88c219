// The providers that a pool can be told to use, by name; each is loaded only where it is used.
import { InvalidRequestError } from "../broker/contract/index.ts";
import type { Provider } from "./provider/provider.ts";

type Make = (settings: Record<string, unknown>) => Promise<Provider>;

const PROVIDERS: Record<string, Make> = {};

/** Throws InvalidRequestError for a name that there is none of, and what the provider throws for its settings. */
export async function makeProvider(name: string, settings: Record<string, unknown>): Promise<Provider> {
  const make = Object.hasOwn(PROVIDERS, name) ? PROVIDERS[name] : undefined;
  if (make === undefined) {
    const known = Object.keys(PROVIDERS).join(", ");
    throw new InvalidRequestError(`no provider ${JSON.stringify(name)}; there are: ${known}`, {
      field: "providers",
    });
  }
  return make(settings);
}
