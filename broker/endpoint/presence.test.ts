// Terminals whose client is gone, and those whose client is there.
import { expect, test } from "bun:test";
import type { Alarm } from "./alarm.ts";
import { Presence } from "./presence.ts";
import { newId, until } from "./testing.ts";
import { playedSandbox } from "./testing-commands.ts";

test("a daemon that was frozen hears what came meanwhile before it takes its client for gone", () => {
  let alarm: Alarm | undefined;
  let gone = 0;
  const deadlines = {
    set(deadline: Alarm) {
      alarm = deadline;
    },
    clear() {
      alarm = undefined;
    },
  };
  const due = () => alarm?.expired();
  const presence = new Presence(deadlines, 90_000, () => gone++);
  for (let times = 0; times < 5; times++) {
    due();
    due();
    presence.heard();
  }
  expect(gone).toBe(0);
  for (let times = 0; times < 5; times++) due();
  expect(gone).toBe(1);
});

const box = playedSandbox();
const pty = { rows: 24, cols: 80, hang_up_ms: 300 };

async function terminal(id = newId(), more: object = { detach: true }) {
  const count = box.executor.commands.length;
  const asked = box.caller.ask("exec", { id, argv: ["x"], pty, ...more });
  await until("the command", () => box.executor.commands.length > count);
  return { id, command: box.executor.last, asked };
}

test.each([
  ["stdin", { offset: 0 }],
  ["resize", { rows: 2, cols: 3 }],
  ["signal", { signal: "SIGWINCH" }],
] as const)(
  "a terminal is hung up when nothing is heard of its client, and not while that asks for %s",
  async (verb, request) => {
    const held = await terminal();
    const left = await terminal();
    await until("the one that was left is hung up", async () => {
      await box.caller.ask(verb, { id: held.id, ...request });
      return left.command.hungUp;
    });
    expect(held.command.hungUp).toBe(false);
    await until("the other one is, too", () => held.command.hungUp);
    for (const { command } of [held, left]) command.exit();
  },
);

test("a terminal without such a limit stays, as does what ended or has no terminal", async () => {
  const { hang_up_ms: _, ...plain } = pty;
  const kept = await terminal(newId(), { detach: true, pty: plain });
  const ended = await terminal();
  ended.command.exit();
  const left = await terminal();
  await until("one is hung up", () => left.command.hungUp);
  expect([kept.command.hungUp, ended.command.hungUp]).toEqual([false, false]);
});
