// The daemon's duties to processes that nobody waits for. In a process of its own: they hold for a whole process.
import { expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { run, testCommands } from "../exec/testing.ts";

const FIXTURE = join(import.meta.dir, "settle.fixture.ts");

async function fixture(what: string, user?: string, ...more: string[]): Promise<Record<string, unknown>> {
  const commands = await testCommands();
  const argv = [process.execPath, FIXTURE, what, ...more];
  const ended = await run(commands, {
    argv,
    env: { SANDMESH_NOFILE: "256" },
    ...(user !== undefined && { user }),
  });
  expect([ended.outcome, ended.stderr.toString()]).toEqual([{ type: "exited", code: 0 }, ""]);
  return JSON.parse(ended.text);
}

test("orphans are reaped, and none of the own commands' statuses is stolen", async () => {
  expect(await fixture("orphans")).toEqual({ codes: true, orphansSeen: true, zombies: 0 });
}, 60_000);

test("10,000 short orphans leave no zombie, and cost no command beside them its status", async () => {
  const folder = mkdtempSync(join(tmpdir(), "orphans-test-"));
  try {
    const program = join(folder, "orphans");
    const source = join(import.meta.dir, "orphans.fixture.c");
    expect(Bun.spawnSync(["cc", "-O2", "-o", program, source]).exitCode).toBe(0);
    expect(await fixture("many-orphans", undefined, program)).toEqual({
      outcome: { type: "exited", code: 0 },
      made: 10_000,
      beside: true,
      zombies: 0,
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
}, 100_000);

test("what another part of the daemon starts keeps its status", async () => {
  expect(await fixture("bun-spawn")).toEqual({ codes: Array(20).fill(7), zombies: 0 });
}, 30_000);

test("a status that someone else took is a fault that is told, never a hang nor an invented code", async () => {
  const { taken, others, after } = await fixture("taken");
  expect([taken, after]).toEqual([true, { type: "exited", code: 4 }]);
  for (const outcome of others as string[]) expect(JSON.parse(outcome)).toEqual({ type: "exited", code: 9 });
}, 60_000);

test("another process of the same user can read neither environment nor memory nor descriptors", async () => {
  const answer = await fixture("hidden", process.getuid?.() === 0 ? "65534:65534" : undefined);
  expect(answer).toEqual({ environ: "", maps: "", fds: "", name: "sandmesh-agent" });
}, 30_000);

test("commands get the soft limit of open files that the launcher found", async () => {
  expect(await fixture("files")).toEqual({ soft: "256" });
}, 30_000);
