// What errors of a command say of whether it had been started, and what a second question says of the first: a sandbox
// played by the test, over real connections.
import { expect, test } from "bun:test";
import {
  ERROR_CLASSES,
  type ErrorCode,
  type SandmeshError,
  type Started,
} from "../../../broker/contract/index.ts";
import { until } from "../../../broker/server/testing.ts";
import type { Mesh } from "../mesh.ts";
import { type Answer, played, SANDBOX } from "../testing/played.ts";

const refusal = (code: ErrorCode, started?: Started): Answer[] => [
  { error: new ERROR_CLASSES[code]("as the test says", started === undefined ? {} : { started }).toWire() },
];
const output = (id: string): Answer => ({
  type: "chunk",
  id,
  stream: "stdout",
  offset: 0,
  data: new Uint8Array([65]),
});
const failure = (work: Promise<unknown>): Promise<SandmeshError> =>
  work.then(
    () => Promise.reject(new Error("it did not fail")),
    (error: SandmeshError) => error,
  );

/** A handle of its own each time: one that is lost stays so. */
const WAYS: Record<string, (mesh: Mesh) => Promise<unknown>> = {
  exec: (mesh) => mesh.sandbox(SANDBOX).exec("true"),
  start: (mesh) => mesh.sandbox(SANDBOX).start("true"),
  stream: (mesh) => mesh.sandbox(SANDBOX).stream("true").drain(),
};

/** What the answer to the only question means, where it does not say so itself. */
const MEANT: [ErrorCode, Started][] = [
  ["invalid_request", "no"],
  ["unknown_verb", "no"],
  ["too_large", "no"],
  ["permission_denied", "no"],
  ["conflict", "no"],
  ["unsupported", "no"],
  ["not_found", "no"],
  ["lease_lost", "no"],
  ["internal", "unknown"],
  ["unknown_command", "unknown"],
  ["provider_failed", "unknown"],
];

test("an answer that refuses a command says that it was not started, and one that may come of it says no such thing", async () => {
  let code: ErrorCode = "internal";
  await using sandbox = await played(() => refusal(code));
  for (const [each, started] of MEANT) {
    code = each;
    for (const [way, run] of Object.entries(WAYS)) {
      const error = await failure(run(sandbox.mesh));
      expect([way, error.code, error.started]).toEqual([way, each, started]);
    }
  }
});

test("what the sandbox says itself of a command is told", async () => {
  await using sandbox = await played(() => refusal("busy", "no"));
  expect(await failure(sandbox.mesh.sandbox(SANDBOX).exec("true"))).toMatchObject({
    code: "busy",
    started: "no",
  });
});

test("a refusal of the second question does not hide that the first may have been obeyed", async () => {
  let first = true;
  await using sandbox = await played(() => (first ? undefined : refusal("lease_lost", "no")));
  const running = failure(sandbox.mesh.sandbox(SANDBOX).exec("true"));
  await until("it was asked", () => sandbox.asked.length > 0);
  first = false;
  sandbox.cut();
  expect(await running).toMatchObject({ code: "lease_lost", started: "unknown" });
});

test("a command that has written is known to have run, whatever another question is answered", async () => {
  await using sandbox = await played(({ verb, id }) => {
    if (verb === "exec") return [output(id), { ...output(id), offset: 5 } as Answer];
    return refusal("lease_lost", "no");
  });
  // Bytes are missing, so that it is asked for again.
  expect(await failure(sandbox.mesh.sandbox(SANDBOX).exec("true"))).toMatchObject({ started: "yes" });
});

test("the refusal of one command is not told of another that runs", async () => {
  let refusing = false;
  await using sandbox = await played(({ id }) => (refusing ? refusal("lease_lost", "no") : [output(id)]));
  const box = sandbox.mesh.sandbox(SANDBOX);
  const stream = box.stream("sleep 600");
  const running = failure(
    (async () => {
      for await (const _ of stream) refusing = true;
    })(),
  );
  await until("it has written", () => refusing);
  expect(await failure(box.exec("true"))).toMatchObject({ code: "lease_lost", started: "no" });
  expect(await running).toMatchObject({ code: "lease_lost", started: "yes" });
  expect(await failure(box.exec("true"))).toMatchObject({ code: "lease_lost", started: "no" });
});

test("who asks again says whose place he takes, so that the sandbox no longer waits for a reader whose way was cut", async () => {
  const done = (id: string): Answer => ({
    type: "end",
    id,
    incarnation: "x",
    outcome: { type: "exited", code: 0 },
    totals: { stdout: { total_bytes: 1, dropped_bytes: 0 }, stderr: { total_bytes: 0, dropped_bytes: 0 } },
    duration_ms: 1,
  });
  // A first answer in which bytes are missing, or none at all.
  for (const heard of [true, false]) {
    await using sandbox = await played(({ verb, id, reader }) => {
      if (reader !== undefined) return heard ? [done(id)] : [output(id), done(id)];
      return heard && verb === "exec" ? [output(id), { ...output(id), offset: 5 } as Answer] : undefined;
    });
    const running = sandbox.mesh.sandbox(SANDBOX).exec("true");
    await until("it is asked", () => sandbox.asked.length > 0);
    if (!heard) sandbox.cut();
    expect((await running).stdout.text).toBe("A");
    const [first, second] = sandbox.asked.filter(({ verb }) => verb !== "credit" && verb !== "ping");
    expect([first?.reader, second?.verb]).toEqual([undefined, heard ? "attach" : "exec"]);
    expect(first?.reply.endsWith(`.${second?.reader}`)).toBe(true);
  }
});
