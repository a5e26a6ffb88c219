// Random lives against the rules that must hold in each of them; a failing seed is in the message.
import { expect, test } from "bun:test";
import { dueAt } from "./deadline.ts";
import type { Effect, SandboxEvent } from "./events.ts";
import { encodeRecord, isEnding, type SandboxRecord } from "./record.ts";
import { step } from "./step.ts";
import { intended, LIMITS, REPLY, randomOf, T0 } from "./testing.ts";

const KEYS = [`U${"A".repeat(55)}`, `U${"B".repeat(55)}`] as const;
const FAULT = { code: "provider_failed", message: "no", retryable: true };

function randomEvent(
  random: ReturnType<typeof randomOf>,
  { generation, connections }: SandboxRecord,
): SandboxEvent {
  const life = random.chance(0.9) ? "life-one" : "life-two";
  const generationOr = random.chance(0.9) ? generation : random.below(4) + 1;
  const server = `s${random.below(2)}`;
  const connection = { server, number: random.below(2), startedAt: random.below(3) };
  const events: readonly SandboxEvent[] = [
    { type: "create_begun" },
    { type: "created", uid: "u1" },
    { type: "created", uid: "u1" },
    { type: "create_failed", error: FAULT },
    {
      type: "enrol",
      generation: generationOr,
      incarnation: life,
      publicKey: random.chance(0.95) ? KEYS[0] : KEYS[1],
      reply: REPLY,
    },
    { type: "ready", generation: generationOr, incarnation: life },
    { type: "ready", generation: 1, incarnation: life },
    { type: "attach", digest: random.chance(0.9) ? "d1" : "d2", reply: REPLY },
    { type: "confirm", generation: generationOr, reply: REPLY },
    { type: "confirm", generation: generationOr, reply: REPLY },
    { type: "end", reason: "released", event: "released" },
    { type: "end", reason: "expired", event: "expired" },
    { type: "deadline" },
    { type: "deadline" },
    { type: "provider_failed", code: "image_error", reason: "image", message: "no" },
    { type: "provider_lost", reason: "oom", message: "oom" },
    { type: "connected", connection },
    { type: "disconnected", connection },
    { type: "server_gone", server },
    { type: "found", open: random.chance(0.5) ? [connection] : [] },
    {
      type: "seen",
      asked: connections,
      open: random.chance(0.5) ? connections : [],
      heard: random.chance(0.5) ? connections : [],
      complete: random.chance(0.8),
    },
    { type: "seen", asked: connections, open: undefined },
    { type: "removed" },
    { type: "remove_failed" },
    { type: "outage_over" },
    { type: "create_moved", provider: "west" },
    {
      type: "recovered",
      listed: random.chance(0.2)
        ? "unknown"
        : random.chance(0.5)
          ? { uid: "u1", failed: undefined }
          : undefined,
    },
  ];
  const event = events[random.below(events.length)];
  if (event === undefined) throw new Error("no event");
  return event;
}

const ENDINGS = new Set(["released", "expired", "lost", "failed"]);
const text = (record: SandboxRecord): string => Buffer.from(encodeRecord(record)).toString("latin1");

/** What may change without a write, since the provider's list, a repeated acquire or the clock gives it back. */
function withoutWrite(before: SandboxRecord, after: SandboxRecord): SandboxRecord {
  const { uid, createdAt, replies, confirmBy, bootDeadlineAt } = before;
  const progress = ["intended", "creating", "booting"];
  const state =
    progress.includes(before.state) && progress.includes(after.state) ? before.state : after.state;
  return { ...after, uid, createdAt, replies, confirmBy, bootDeadlineAt, state };
}

class Life {
  record = intended();
  endings = 0;
  answered = 0;
  lease: string = this.record.lease;

  check(event: SandboxEvent, now: number): void {
    const before = this.record;
    const { record: after, effects } = step(before, event, now, LIMITS);
    const write = effects.findIndex((e: Effect) => e.type === "write");
    // No effect before its record is durable.
    expect(write).toBeLessThanOrEqual(0);
    if (write === -1) expect(text(withoutWrite(before, after))).toBe(text(before));
    // Generation only grows, and a lease is never handed on.
    expect(after.generation).toBeGreaterThanOrEqual(before.generation);
    expect([after.lease, after.sandbox, after.run]).toEqual([before.lease, before.sandbox, before.run]);
    // What ends does not come back to life.
    if (isEnding(before.state) || before.state === "gone") {
      expect(isEnding(after.state) || after.state === "gone").toBe(true);
      expect(after.end).toEqual(before.end);
      for (const e of effects) if (e.type === "answer") expect(e.answer.type).toBe("error");
    }
    for (const effect of effects) {
      if (effect.type === "event" && ENDINGS.has(effect.what)) this.endings++;
      if (effect.type === "create") expect(["intended", "creating"]).toContain(after.state);
      if (effect.type === "answer" && effect.answer.type === "grant") {
        expect(["granted", "leased"]).toContain(after.state);
      }
    }
    // A duty to remove is always either under way or has a time at which it is tried again.
    if (isEnding(after.state)) {
      expect(after.removal).not.toBe("none");
      if (after.removal === "waiting")
        expect(dueAt(after)).toBeLessThanOrEqual(now + LIMITS.removeRetryMaxMs);
    } else if (after.state !== "gone") {
      // Every life has an end.
      expect(dueAt(after)).toBeLessThanOrEqual(after.dieAt);
    }
    this.record = after;
  }
}

test("no order of events breaks the rules of a sandbox's life, and each life can end in gone", () => {
  for (let seed = 1; seed <= 1500; seed++) {
    const random = randomOf(seed);
    const life = new Life();
    let now = T0;
    try {
      for (let i = 0; i < 30; i++) {
        now += random.below(random.chance(0.1) ? 80_000 : 500);
        life.check(randomEvent(random, life.record), now);
      }
      // Left alone, its own deadlines and an honest provider bring it to its end.
      for (let i = 0; i < 10 && life.record.state !== "gone"; i++) {
        if (isEnding(life.record.state) && life.record.removal !== "waiting") {
          life.check({ type: "removed" }, now);
          continue;
        }
        now = Math.max(now, dueAt(life.record));
        life.check({ type: "deadline" }, now);
      }
      expect(life.record.state).toBe("gone");
      expect(life.endings).toBe(1);
    } catch (error) {
      throw new Error(`seed ${seed}`, { cause: error });
    }
  }
});
