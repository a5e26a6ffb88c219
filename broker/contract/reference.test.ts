// The reference page is generated; it must not tell of a contract that was.
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as c from "./index.ts";
import { reference } from "./reference.ts";

test("REFERENCE.md is that of the contract as it is now (else: bun broker/contract/reference.ts)", () => {
  const committed = readFileSync(join(import.meta.dir, "REFERENCE.md"), "utf8");
  expect(committed === reference()).toBe(true);
});

test("every body that the page gives for the nats CLI is one that the contract takes", () => {
  const examples = [...reference().matchAll(/^nats req (\S+) (\S+) '(\{.*\})'$/gm)];
  expect(examples.length).toBeGreaterThan(20);
  for (const [, prefix = "", subject = "", body = ""] of examples) {
    const parsed = c.parseSubject(subject);
    if (parsed?.kind !== "sandbox" && parsed?.kind !== "pool") throw new Error(`${subject} is no request`);
    const verbs: Record<string, c.Verb> = parsed.kind === "pool" ? c.POOL_VERBS : c.SANDBOX_VERBS;
    const verb = verbs[parsed.verb];
    if (verb === undefined) throw new Error(`${subject} has no such verb`);
    c.parse(verb.request, Buffer.from(body));
    const reply = `${prefix.replace("--inbox-prefix=", "")}.token`;
    expect(c.isReplyFor(reply, parsed.tenant, parsed.kind === "pool" ? "pool" : parsed.sandbox)).toBe(true);
  }
});
