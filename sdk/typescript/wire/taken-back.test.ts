// What a caller has given up, and a sandbox may be long at, is taken back there, by its name. A sandbox played by the test.
import { expect, test } from "bun:test";
import { until } from "../../../broker/server/testing.ts";
import type { Sandbox } from "../mod.ts";
import { played, SANDBOX } from "../testing/played.ts";

const LOOKS: [verb: string, (box: Sandbox, signal: AbortSignal) => Promise<unknown>][] = [
  ["list", ({ files }, signal) => files.list("a", { signal })],
  ["glob", ({ files }, signal) => files.glob("*", { signal })],
  ["search", ({ files }, signal) => files.search("x", "a", { signal })],
  ["hash", ({ files }, signal) => files.sha256("a", { signal })],
  ["remove", ({ files }, signal) => files.remove("a", { recursive: true, signal })],
];

test.each(LOOKS)("%s", async (verb, ask) => {
  await using sandbox = await played(() => undefined);
  const abort = new AbortController();
  const asked = (name: string) => sandbox.asked.find((each) => each.verb === name);
  const failure = ask(sandbox.mesh.sandbox(SANDBOX), abort.signal).catch((error: unknown) => error);
  await until("it is asked", () => asked(verb) !== undefined);
  expect(asked(verb)?.transfer).toBeString();
  abort.abort();
  expect(await failure).toMatchObject({ code: "canceled" });
  await until("it is taken back", () => asked("abort_transfer") !== undefined);
  expect(asked("abort_transfer")?.transfer).toBe(asked(verb)?.transfer as string);
});
