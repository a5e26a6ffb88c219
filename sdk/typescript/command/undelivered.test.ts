// Input that cannot be delivered does not leave its command waiting: a sandbox played by the test, over real connections.
import { expect, test } from "bun:test";
import { until } from "../../../broker/server/testing.ts";
import type { Sandbox } from "../mod.ts";
import { type Answer, played, SANDBOX } from "../testing/played.ts";

const HERE = { sandbox: SANDBOX, incarnation: "x", generation: 1 };
const REFUSED: Answer = { error: { code: "permission_denied", message: "as the test says" } };
const MUCH = new Uint8Array(600_000);

const WAYS: [string, (box: Sandbox) => Promise<unknown>][] = [
  ["exec", (box) => box.exec("cat", { stdin: MUCH })],
  ["stream", (box) => box.stream("cat", { stdin: MUCH }).drain()],
];

test.each(WAYS)(
  "%s, whose stdin is refused, says so, and ends the command, which would wait for it for ever",
  async (_name, run) => {
    await using sandbox = await played(({ verb }) => {
      if (verb === "ping") return [HERE];
      if (verb === "stdin") return [REFUSED];
      return verb === "cancel" ? [{ running: true }] : undefined;
    });
    const error = await run(sandbox.mesh.sandbox(SANDBOX)).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: "permission_denied", message: "as the test says" });
    await until("it is ended", () => sandbox.asked.some(({ verb }) => verb === "cancel"));
  },
  20_000,
);

test("a started command, whose stdin is refused, is ended: half of its input would be the whole", async () => {
  let taken = 0;
  await using sandbox = await played(({ verb, id }) => {
    if (verb === "ping") return [HERE];
    if (verb === "exec") return [{ type: "started", id, pid: 1, incarnation: "x" }];
    if (verb === "stdin") return ++taken === 1 ? [{ received: 256 * 1024 }] : [REFUSED];
    return verb === "cancel" ? [{ running: true }] : undefined;
  });
  await sandbox.mesh.sandbox(SANDBOX).start("cat", { stdin: MUCH });
  await until("it is ended", () => sandbox.asked.some(({ verb }) => verb === "cancel"));
  // The end of stdin was not told.
  expect(taken).toBe(2);
}, 20_000);
