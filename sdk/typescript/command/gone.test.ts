// Who reads a command's output no longer says so to the sandbox: one played by the test, over real connections.
import { expect, test } from "bun:test";
import { parseSubject } from "../../../broker/contract/index.ts";
import { until } from "../../../broker/server/testing.ts";
import type { Mesh } from "../mesh.ts";
import { type Answer, type Asked, played, SANDBOX } from "../testing/played.ts";

const ID = "0190a5b1-0000-7000-8000-000000000001";
const chunk = { type: "chunk", id: ID, stream: "stdout", offset: 0, data: new Uint8Array([65]) } as const;
const total = { total_bytes: 1, dropped_bytes: 0 };
const end: Answer = {
  type: "end",
  id: ID,
  incarnation: "x",
  outcome: { type: "exited", code: 0 },
  totals: { stdout: total, stderr: { total_bytes: 0, dropped_bytes: 0 } },
  duration_ms: 1,
};

const tokenOf = ({ reply }: Asked): string | undefined => {
  const subject = parseSubject(reply);
  return subject?.kind === "reply" ? subject.token : undefined;
};

/** The tokens of the questions that nobody reads any more. */
const told = (asked: readonly Asked[]) =>
  asked.filter(({ body }) => body.left === true).map(({ body }) => body.token);

/** Each leaves its command's output when the first chunk, of one, has come. */
const WAYS: Record<string, (mesh: Mesh, hasCome: () => Promise<unknown>) => Promise<unknown>> = {
  "a stream's loop": async (mesh) => {
    for await (const _ of mesh.sandbox(SANDBOX).stream("yes")) break;
  },
  "what is done with a chunk fails": async (mesh) => {
    for await (const _ of mesh.sandbox(SANDBOX).stream("yes")) throw new Error("as the test says");
  },
  "the loop of what it attached to": async (mesh) => {
    for await (const _ of mesh.sandbox(SANDBOX).command(ID).attach()) break;
  },
  "a stream that is closed beside its loop": async (mesh, hasCome) => {
    const stream = mesh.sandbox(SANDBOX).stream("yes");
    const reading = stream.drain();
    await hasCome();
    stream.close();
    await reading;
  },
  "a run that its signal ends": async (mesh, hasCome) => {
    const abort = new AbortController();
    const running = mesh.sandbox(SANDBOX).exec("yes", { signal: abort.signal });
    await hasCome();
    abort.abort();
    await running;
  },
  "the waiting for a command": async (mesh, hasCome) => {
    const abort = new AbortController();
    const waiting = mesh.sandbox(SANDBOX).command(ID).wait({ signal: abort.signal });
    await hasCome();
    abort.abort();
    await waiting;
  },
};

test.each(Object.entries(WAYS))("%s is left: the sandbox is told of that answer", async (_, leave) => {
  await using sandbox = await played(({ verb }) => (/exec|attach/.test(verb) ? [chunk] : undefined));
  const question = () => sandbox.asked.find(({ verb }) => /exec|attach/.test(verb));
  await leave(sandbox.mesh, () => until("the question", () => question() !== undefined)).catch(() => {});
  await until("it is told", () => told(sandbox.asked).length > 0);
  expect(told(sandbox.asked)).toEqual([tokenOf(question() as Asked)]);
});

test("of what came to its end, or was refused, the sandbox is told nothing", async () => {
  const refusal = { error: { code: "unknown_command", message: "as the test says", retryable: false } };
  const answers: Record<string, Answer[]> = {
    exec: [chunk, end],
    attach: [refusal],
    ping: [{ sandbox: SANDBOX, incarnation: "x", generation: 1 }],
  };
  await using sandbox = await played(({ verb }) => answers[verb]);
  const box = sandbox.mesh.sandbox(SANDBOX);
  await box.exec("true");
  await box.stream("true").drain();
  for (const refused of [box.command(ID).wait(), box.command(ID).attach().drain()])
    expect(await refused.catch(({ code }) => code)).toBe("unknown_command");
  // Behind all that was said before, on the same connection.
  await box.ping();
  expect(told(sandbox.asked)).toEqual([]);
});
