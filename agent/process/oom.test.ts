// Which SIGKILL is put down to memory, with counters as the kernel writes them.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { memoryLimitBytes, OomKills } from "./oom.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "oom-test-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const VERSIONS = {
  1: {
    events: (kills: number) => `oom_kill_disable 0\nunder_oom 0\noom_kill ${kills}\n`,
    limit: "67108864\n",
  },
  2: {
    events: (kills: number) => `low 0\nhigh 0\nmax 91\noom 3\noom_kill ${kills}\noom_group_kill 0\n`,
    limit: "67108864\n",
  },
} as const;

describe.each<keyof typeof VERSIONS>([1, 2])("cgroup version %d", (version) => {
  const { events, limit } = VERSIONS[version];
  function sandbox(kills: number) {
    const files = { events: join(folder, "events"), limit: join(folder, "limit") };
    const set = (count: number): void => writeFileSync(files.events, events(count));
    set(kills);
    writeFileSync(files.limit, limit);
    const clock = { ms: 1000 };
    const oom = new OomKills([{ events: "/no/such", limit: "/no/such" }, files], () => clock.ms);
    return { files, set, clock, oom };
  }
  const told = { limitBytes: 64 * 1024 * 1024 };

  test("a kill while the command ran is its own, with the limit; one from before is not", () => {
    const { set, clock, oom, files } = sandbox(5);
    expect(memoryLimitBytes([files])).toBe(told.limitBytes);
    expect(oom.claim(900)).toBeUndefined();
    set(6);
    expect(oom.claim(900)).toEqual(told);
    expect(oom.claim(900)).toBeUndefined();
    clock.ms = 2000;
    expect(oom.claim(1900)).toBeUndefined();
  });

  test("a kill below a shell, or of background work, is not the next command's", () => {
    const { set, clock, oom } = sandbox(0);
    set(1);
    oom.look(); // the shell ends, with the exit code 137
    clock.ms = 1001;
    expect(oom.claim(1001)).toBeUndefined();
    set(2); // of background work, while nothing begins or ends
    clock.ms = 1100;
    oom.look(); // a command begins
    expect(oom.claim(1100)).toBeUndefined();
  });

  test("another command's end in between does not take the kill from its victim", () => {
    const { set, clock, oom } = sandbox(0);
    set(1);
    clock.ms = 1010;
    oom.look(); // another ends by itself
    clock.ms = 1500;
    expect(oom.claim(1000)).toEqual(told);
  });

  test("two victims at once are both told, a third by hand is not", () => {
    const { set, oom } = sandbox(0);
    set(2);
    expect([oom.claim(900), oom.claim(900), oom.claim(900)]).toEqual([told, told, undefined]);
  });

  test("a command of long ago does not claim what was killed minutes before its end", () => {
    const { set, clock, oom } = sandbox(0);
    set(1);
    oom.look();
    clock.ms += 60_000;
    expect(oom.claim(500)).toBeUndefined();
  });

  test("counters that vanish or turn to nonsense say nothing", () => {
    const { oom, files } = sandbox(1);
    writeFileSync(files.events, "?");
    expect(oom.claim(0)).toBeUndefined();
    rmSync(files.events);
    expect(oom.claim(0)).toBeUndefined();
  });
});

test("where no counter is seen, a SIGKILL is a SIGKILL", () => {
  expect(new OomKills([]).claim(0)).toBeUndefined();
});
