import { describe, expect, test } from "bun:test";
import { dueAt } from "./deadline.ts";
import type { Effect, FoundAgain, SandboxEvent } from "./events.ts";
import { decodeRecord, encodeRecord, type SandboxRecord } from "./record.ts";
import { step } from "./step.ts";
import { intended, LIMITS, REPLY, T0 } from "./testing.ts";

const OTHER = { subject: "rep.v1.default.pool.alice.t2", encoding: "json" } as const;
const KEY = `U${"A".repeat(55)}`;
const THIEF = `U${"B".repeat(55)}`;

/** Plays events 1 ms apart; the effects are those of the last. */
function play(
  record: SandboxRecord,
  ...events: SandboxEvent[]
): { record: SandboxRecord; effects: readonly Effect[] } {
  let now = T0;
  let result: { record: SandboxRecord; effects: readonly Effect[] } = { record, effects: [] };
  for (const event of events) result = step(result.record, event, ++now, LIMITS);
  return result;
}

const begun: SandboxEvent = { type: "create_begun" };
const created: SandboxEvent = { type: "created", uid: "u1" };
const enrol = (publicKey = KEY, incarnation = "life-one"): SandboxEvent => ({
  type: "enrol",
  generation: 1,
  incarnation,
  publicKey,
  reply: REPLY,
});
const ready = (incarnation = "life-one", generation = 1): SandboxEvent => ({
  type: "ready",
  generation,
  incarnation,
});
const confirm: SandboxEvent = { type: "confirm", generation: 2, reply: REPLY };
const release: SandboxEvent = { type: "end", reason: "released", event: "released" };
const removed: SandboxEvent = { type: "removed" };
const granted = (): SandboxRecord => play(intended(), begun, created, enrol(), ready()).record;
const leased = (): SandboxRecord => play(granted(), confirm).record;
const at = (record: SandboxRecord, now: number) => step(record, { type: "deadline" }, now, LIMITS);
const kinds = (effects: readonly Effect[]): string[] =>
  effects.map((e) =>
    e.type === "control" ? `control ${e.verb}` : e.type === "answer" ? `answer ${e.answer.type}` : e.type,
  );
const errorIn = (effects: readonly Effect[]) => {
  for (const e of effects) if (e.type === "answer" && e.answer.type === "error") return e.answer.error;
  return undefined;
};

describe("a life that goes well", () => {
  test("the daemon hears of its grant before the caller does, and both after the write", () => {
    const { record, effects } = play(intended(), begun, created, enrol(), ready());
    expect(kinds(effects)).toEqual(["write", "control grant", "answer grant", "event"]);
    expect(record).toMatchObject({ state: "granted", generation: 2, confirmBy: T0 + 4 + 10_000 });
  });

  test("a daemon faster than the provider's answer is granted all the same", () => {
    const fast = play(intended(), begun, enrol(), ready(), created);
    expect(fast.record).toMatchObject({ state: "granted", uid: "u1" });
  });

  test("confirm, release and removal lead to gone with one released event", () => {
    const ending = play(leased(), release);
    expect(kinds(ending.effects)).toEqual(["write", "control release", "event", "remove"]);
    expect(kinds(play(ending.record, release).effects)).toEqual([]);
    expect(play(ending.record, removed)).toMatchObject({ record: { state: "gone" } });
  });

  test("a record is the same after a restart, but for what a new pool finds out anew", () => {
    for (const record of [intended(), granted(), leased(), play(leased(), release).record]) {
      const back = decodeRecord(encodeRecord(record));
      expect(encodeRecord(back)).toEqual(encodeRecord(record));
      expect(back.state).toBe(record.state);
    }
  });
});

describe("asking again", () => {
  test("all that ask under one id while it boots get the grant, and each that asks once it is granted", () => {
    const attach: SandboxEvent = { type: "attach", digest: "d1", reply: OTHER };
    const moved = play(intended(), begun, attach, created, enrol(), ready());
    const answers = (effects: readonly Effect[]) =>
      effects.flatMap((e) => (e.type === "answer" ? [e.reply] : []));
    expect(answers(moved.effects)).toEqual([REPLY, OTHER]);
    const failed = play(intended(), attach, { type: "end", reason: "released", event: "released" });
    expect(answers(failed.effects)).toEqual([REPLY, OTHER]);
    const patient = play(intended(), ...Array.from({ length: 100 }, () => attach));
    expect(patient.record.replies?.length).toBeLessThanOrEqual(16);
    expect(kinds(play(granted(), attach).effects)).toEqual(["answer grant"]);
    expect(kinds(play(leased(), attach).effects)).toEqual(["answer grant"]);
  });

  test("other content under the same id is a conflict, whatever the state", () => {
    const other: SandboxEvent = { type: "attach", digest: "d2", reply: OTHER };
    for (const record of [intended(), granted(), leased(), play(leased(), release, removed).record]) {
      expect(errorIn(play(record, other).effects)?.code).toBe("conflict");
    }
  });

  test("after the end it hears why, and no second sandbox comes of it", () => {
    const attach: SandboxEvent = { type: "attach", digest: "d1", reply: OTHER };
    const timedOut = at(play(intended(), begun).record, T0 + 60_000);
    expect(errorIn(play(timedOut.record, attach).effects)).toMatchObject({
      code: "boot_failed",
      reason: "boot_timeout",
    });
    const gone = play(leased(), release, removed);
    expect(errorIn(play(gone.record, attach).effects)).toMatchObject({
      code: "sandbox_lost",
      reason: "released",
    });
  });

  test("a confirm of another generation, or of what has ended, is refused", () => {
    expect(errorIn(play(granted(), { ...confirm, generation: 1 }).effects)?.code).toBe("lease_lost");
    expect(errorIn(play(intended(), confirm).effects)?.code).toBe("lease_lost");
    expect(errorIn(play(leased(), release, confirm).effects)?.code).toBe("sandbox_lost");
    expect(kinds(play(leased(), confirm).effects)).toEqual(["answer confirmed"]);
  });
});

describe("deadlines", () => {
  test("each has its own error, and the earliest is the one that is due", () => {
    const creating = play(intended({ callerDeadlineAt: T0 + 5_000 }), begun).record;
    expect(dueAt(creating)).toBe(T0 + 5_000);
    expect(at(creating, T0 + 4_999).record).toBe(creating);
    const timedOut = at(creating, T0 + 5_000);
    expect(kinds(timedOut.effects)).toEqual(["write", "abort_create", "answer error", "event", "remove"]);
    expect(errorIn(timedOut.effects)).toMatchObject({ code: "acquire_timeout", reason: "creating" });
    const booting = play(intended({ callerDeadlineAt: T0 + 5_000 }), begun, created).record;
    expect(errorIn(at(booting, T0 + 5_000).effects)).toMatchObject({ reason: "booting" });
    const slow = play(intended(), begun, created).record;
    expect(errorIn(at(slow, T0 + 60_000).effects)).toMatchObject({
      code: "boot_failed",
      reason: "boot_timeout",
    });
  });

  test("an unconfirmed grant is taken back, a confirmed one only at the end of its life", () => {
    expect(at(granted(), T0 + 20_000).record).toMatchObject({
      state: "releasing",
      end: { reason: "unconfirmed" },
    });
    expect(at(leased(), T0 + 20_000).record.state).toBe("leased");
    expect(at(leased(), T0 + 3_600_000).record).toMatchObject({
      state: "releasing",
      end: { event: "expired" },
    });
  });
});

describe("someone with the sandbox's credential", () => {
  test("a second enrolment ends it as tampered, the same daemon's repeated one does not", () => {
    const once = play(intended(), begun, created, enrol()).record;
    expect(kinds(play(once, enrol()).effects)).toEqual(["answer enrolled"]);
    for (const record of [once, granted(), leased()]) {
      const { record: next, effects } = play(record, enrol(THIEF, "life-two"));
      expect(next).toMatchObject({ state: "lost", end: { reason: "tampered" } });
      expect(kinds(effects)).not.toContain("answer enrolled");
    }
  });

  test("the same key under another incarnation is a second enrolment too", () => {
    expect(play(granted(), enrol(KEY, "life-two")).record.end?.reason).toBe("tampered");
  });

  test("a bootstrap of another generation does not enrol", () => {
    const { record, effects } = play(intended(), begun, { ...enrol(), generation: 7 } as SandboxEvent);
    expect(errorIn(effects)?.code).toBe("lease_lost");
    expect(record.publicKey).toBeUndefined();
  });
});

describe("loss", () => {
  test("a provider that lost it before it was ready answers the acquire with a reason", () => {
    const lost: SandboxEvent = { type: "provider_lost", reason: "oom", message: "killed for memory" };
    const { effects } = play(intended(), begun, created, lost);
    expect(errorIn(effects)).toMatchObject({ code: "boot_failed", reason: "oom" });
    expect(play(leased(), lost).record).toMatchObject({ state: "lost", end: { reason: "oom" } });
  });

  test("a failed create keeps the provider's own error class", () => {
    const error = { code: "image_error", message: "no such image", retryable: false };
    const { effects } = play(intended(), begun, { type: "create_failed", error });
    expect(errorIn(effects)).toEqual(error);
    expect(kinds(effects)).toContain("remove");
  });
});

describe("the duty to remove", () => {
  test("a failed removal is tried again, later each time, and never dropped", () => {
    let record = play(leased(), release).record;
    let now = T0;
    const waits: number[] = [];
    for (let i = 0; i < 12; i++) {
      record = step(record, { type: "remove_failed" }, now, LIMITS).record;
      waits.push(dueAt(record) - now);
      now = dueAt(record);
      const again = at(record, now);
      expect(kinds(again.effects)).toEqual(["remove"]);
      record = again.record;
    }
    expect(waits.slice(0, 3)).toEqual([100, 200, 400]);
    expect(waits.at(-1)).toBe(5_000);
  });

  test("what was refused is another provider's from its record on, unless it has ended or is there after all", () => {
    const moved: SandboxEvent = { type: "create_moved", provider: "west" };
    const next = play(intended(), begun, moved);
    expect(next.record).toMatchObject({ provider: "west", state: "intended" });
    expect(kinds(next.effects)).toEqual(["write", "create"]);
    const ended = play(intended(), begun, release).record;
    expect(play(ended, moved)).toEqual({ record: ended, effects: [] });
    expect(play(granted(), moved).record.provider).toBe(granted().provider);
  });

  test("a create that ends after its time-out is removed again before it counts as gone", () => {
    const ending = at(play(intended(), begun).record, T0 + 60_000).record;
    const late = play(ending, created);
    expect(kinds(play(late.record, removed).effects)).toEqual(["remove"]);
    const gone = play(ending, removed).record;
    expect(gone.state).toBe("gone");
    expect(kinds(play(gone, created).effects)).toEqual(["write", "remove"]);
    expect(play(gone, created, removed).record.state).toBe("gone");
  });
});

describe("recovery", () => {
  const recovered = (listed: FoundAgain): SandboxEvent => ({ type: "recovered", listed });
  const there = recovered({ uid: "u1", failed: undefined });
  const missing = recovered(undefined);

  test("an intent that the provider does not have is created (again), one that it has goes on", () => {
    expect(kinds(play(intended(), missing).effects)).toEqual(["create"]);
    expect(play(intended(), there).record.state).toBe("booting");
  });

  test("a grant that nobody may have heard of is told again, a lease goes on, a missing one is lost", () => {
    expect(kinds(play(granted(), there).effects)).toEqual(["control grant", "answer grant"]);
    expect(kinds(play(leased(), there).effects)).toEqual(["control renew"]);
    expect(play(leased(), missing).record).toMatchObject({ state: "lost", end: { reason: "deleted" } });
    expect(play(granted(), missing).record.state).toBe("lost");
  });

  test("what a provider that is away may have is neither lost nor there; what was not begun is sent to it", () => {
    const unknown = recovered("unknown");
    expect(kinds(play(leased(), unknown).effects)).toEqual(["control renew"]);
    expect(play(leased(), unknown).record).toMatchObject({ state: "leased", uid: leased().uid });
    expect(kinds(play(granted(), unknown).effects)).toEqual(["control grant", "answer grant"]);
    expect(kinds(play(intended(), unknown).effects)).toEqual(["create"]);
    expect(kinds(play(play(leased(), release).record, unknown).effects)).toEqual(["remove"]);
    expect(kinds(play(play(leased(), release, removed).record, unknown).effects)).toEqual([]);
  });

  test("a duty to remove is taken up again, and a tombstone that has a body is removed", () => {
    expect(kinds(play(play(leased(), release).record, missing).effects)).toEqual(["remove"]);
    const gone = play(leased(), release, removed).record;
    expect(kinds(play(gone, missing).effects)).toEqual([]);
    expect(kinds(play(gone, there).effects)).toEqual(["write", "remove"]);
  });
});
