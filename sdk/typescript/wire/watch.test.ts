import { expect, test } from "bun:test";
import { DeadlineError } from "../../../broker/contract/index.ts";
import { testServer } from "../../../broker/server/testing.ts";
import { Box } from "./box.ts";
import { Caller } from "./caller.ts";
import { Lifeline } from "./lifeline.ts";
import { Pulse } from "./pulse.ts";
import { type Patience, Watch } from "./watch.ts";

/** A sandbox that is there (or stopped: subscribed, and answers nothing), and a watch on a command in it. */
async function watched(
  answers: boolean,
  patience: Patience | undefined = { limitMs: 3_000, graceMs: 6_000 },
) {
  const server = await testServer();
  const sandbox = await server.sandbox("acme", "sb-1");
  const asked = new Set<string>();
  sandbox.subscribe("sbx.v1.acme.sb-1.*", (message) => {
    asked.add(message.subject);
    if (answers)
      message.respond(Buffer.from(JSON.stringify({ sandbox: "sb-1", incarnation: "one", generation: 1 })));
  });
  await sandbox.flush();
  const caller = new Caller(await server.user("acme", "ann"));
  const box = new Box(caller, new Pulse(), new Lifeline(), { sandbox: "sb-1", fence: {} });
  const watch = new Watch(box, { signal: undefined, patience, started: () => "unknown" });
  let stopped: () => void;
  const end = new Promise<void>((go) => {
    stopped = go;
  });
  const failure = (): unknown => {
    try {
      watch.throwIfStopped();
      return undefined;
    } catch (error) {
      return error;
    }
  };
  const token = "t";
  watch.reading({
    token,
    close: () => stopped(),
    [Symbol.asyncIterator]: () => ({
      next: async () => {
        await end;
        return { done: true, value: undefined };
      },
    }),
  });
  return {
    box,
    watch,
    end,
    asked,
    failure,
    async [Symbol.asyncDispose]() {
      watch.end();
      await server.close();
    },
  };
}

test("at the caller's limit a sandbox that does not answer is not waited for any longer", async () => {
  await using the = await watched(false);
  const begun = Date.now();
  the.watch.onTick(begun + 2_000);
  expect(the.failure()).toBeUndefined();
  the.watch.onTick(begun + 3_100);
  await the.end;
  expect(the.failure()).toBeInstanceOf(DeadlineError);
  expect(the.failure()).toMatchObject({ sandbox: "sb-1", started: "unknown" });
});

test("a file of which nothing comes for a minute is given up, but not where its reader has not asked for more", async () => {
  await using the = await watched(true, { limitMs: 600_000, graceMs: 0 });
  const begun = Date.now();
  the.watch.holding = true;
  the.watch.onTick(begun + 61_000);
  expect(the.watch.silent).toBe(false);
  the.watch.holding = false;
  the.watch.onTick(begun + 62_000);
  await the.end;
  expect(the.watch.silent).toBe(true);
});

test("a sandbox that is there has its grace to end the command, and no more", async () => {
  await using the = await watched(true);
  const begun = Date.now();
  the.watch.onTick(begun + 3_100);
  expect(await the.box.inquire()).toBe("here");
  expect(the.asked.size).toBe(1);
  the.watch.onTick(begun + 8_000);
  expect(await the.box.inquire()).toBe("here");
  expect(the.failure()).toBeUndefined();
  the.watch.onTick(begun + 9_100);
  expect(the.failure()).toBeInstanceOf(DeadlineError);
});
