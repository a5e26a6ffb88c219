// For tests of links: a sandbox that answers whatever it is asked with the same.
import type { TestServer } from "../server/testing.ts";
import type { Link } from "./link.ts";

/** Each test's own sandbox, so that none hears another's. */
let count = 0;
export const newSandbox = (): string => `sb-${++count}`;
export const body = (text: string): Buffer => Buffer.from(text);
export const quick = { timeoutMs: 10_000 };

export async function echo(server: TestServer, sandbox: string): Promise<Link> {
  const box = await server.sandbox("acme", sandbox);
  box.subscribe(`sbx.v1.acme.${sandbox}.*`, (message) => message.respond(message.data));
  await box.flush();
  return box;
}
