// A trainer, for the chaos tests: `bun client.ts ORDER` against the mesh of SANDMESH_HOME. Acquires as ordered, runs a
// command where one is given, and then waits for whatever happens to it; a line of JSON a step. A line on stdin is a
// shell line for its first sandbox. client.py is the same in Python.
import { createInterface } from "node:readline";
import * as v from "valibot";
import { connect, type Sandbox, SandmeshError } from "../../sdk/typescript/mod.ts";

const Order = v.object({
  count: v.optional(v.number(), 1),
  lease_ms: v.number(),
  /** Run in each sandbox; its first output is told as `running`. */
  command: v.optional(v.string()),
});

const say = (step: string, more: object = {}) =>
  process.stdout.write(`${JSON.stringify({ step, ...more })}\n`);
const told = (error: unknown) =>
  error instanceof SandmeshError
    ? { code: error.code, reason: error.reason, started: error.started }
    : { code: "untyped", reason: String(error) };

async function run(box: Sandbox, command: string): Promise<void> {
  try {
    const stream = box.stream(command);
    for await (const chunk of stream) say("running", { sandbox: box.id, text: chunk.text });
    say("ended", { sandbox: box.id, outcome: (await stream.end).outcome });
  } catch (error) {
    say("ended", { sandbox: box.id, ...told(error) });
  }
}

const order = v.parse(Order, JSON.parse(process.argv[2] ?? "{}"));
const mesh = await connect({ lease: order.lease_ms });
const acquires = Array.from({ length: order.count }, () => mesh.acquire({ image: "host" }));
say("asked");
const boxes = await Promise.all(acquires);
say("acquired", { sandboxes: boxes.map((box) => box.id) });
for (const box of boxes) {
  box.onLost((error) => say("lost", { sandbox: box.id, ...told(error) }));
  if (order.command !== undefined) void run(box, order.command);
}
for await (const line of createInterface({ input: process.stdin })) {
  try {
    const result = await boxes[0]?.exec(line, { timeout: "5s" });
    say("result", { outcome: result?.outcome, stdout: result?.stdout.text });
  } catch (error) {
    say("result", told(error));
  }
}
