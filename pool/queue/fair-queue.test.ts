import { describe, expect, test } from "bun:test";
import { randomOf } from "../lifecycle/testing.ts";
import { FairQueue } from "./fair-queue.ts";

const item = (tenant: string, run: string, id: string) => ({ tenant, run, id });
const bounds = { maxQueued: 1000, maxQueuedPerTenant: 1000 };

describe("fair queue", () => {
  test("a run that came later with few is not behind one that came first with many", () => {
    const queue = new FairQueue(bounds);
    for (let i = 0; i < 100; i++) queue.push(item("t", "big", `b${i}`));
    for (let i = 0; i < 3; i++) queue.push(item("t", "small", `s${i}`));
    const first = Array.from({ length: 6 }, () => queue.take()?.run);
    expect(first).toEqual(["big", "small", "big", "small", "big", "small"]);
  });

  test("a tenant with many runs gets no more turns than one with a single run", () => {
    const queue = new FairQueue(bounds);
    for (let r = 0; r < 10; r++) for (let i = 0; i < 10; i++) queue.push(item("many", `r${r}`, `${r}-${i}`));
    for (let i = 0; i < 20; i++) queue.push(item("one", "r", `${i}`));
    const taken = Array.from({ length: 40 }, () => queue.take()?.tenant);
    expect(taken.filter((t) => t === "one").length).toBe(20);
  });

  test("a run gets its own in the order in which they came", () => {
    const queue = new FairQueue(bounds);
    for (let i = 0; i < 5; i++) queue.push(item("t", "r", `${i}`));
    expect(Array.from({ length: 5 }, () => queue.take()?.id)).toEqual(["0", "1", "2", "3", "4"]);
    expect(queue.take()).toBeUndefined();
  });

  test("one tenant that fills its bound does not keep another out, the pool's bound does", () => {
    const queue = new FairQueue({ maxQueued: 3, maxQueuedPerTenant: 2 });
    expect([queue.push(item("a", "r", "1")), queue.push(item("a", "r", "2"))]).toEqual([true, true]);
    expect(queue.full("a")).toBe("tenant");
    expect(queue.push(item("a", "r", "3"))).toBe(false);
    expect(queue.push(item("b", "r", "1"))).toBe(true);
    expect(queue.full("b")).toBe("pool");
    expect(queue.push(item("c", "r", "1"))).toBe(false);
    expect(queue.size).toBe(3);
  });

  test("what was cancelled is never taken, and makes room", () => {
    const queue = new FairQueue({ maxQueued: 2, maxQueuedPerTenant: 2 });
    queue.push(item("t", "r", "1"));
    queue.push(item("t", "r", "2"));
    expect(queue.remove(item("t", "r", "1"))).toBe(true);
    expect(queue.remove(item("t", "r", "1"))).toBe(false);
    expect(queue.push(item("t", "r", "3"))).toBe(true);
    expect([queue.take()?.id, queue.take()?.id, queue.take()?.id]).toEqual(["2", "3", undefined]);
  });

  test("no seed of pushes, takes and cancels loses, doubles or starves one", () => {
    for (let seed = 1; seed <= 200; seed++) {
      const { below } = randomOf(seed);
      const queue = new FairQueue({ maxQueued: 40, maxQueuedPerTenant: 25 });
      const inside = new Map<string, ReturnType<typeof item>>();
      for (let i = 0; i < 300; i++) {
        const dice = below(10);
        if (dice < 5) {
          const one = item(`t${below(3)}`, `r${below(3)}`, `${i}`);
          const fits = queue.full(one.tenant) === undefined;
          expect(queue.push(one)).toBe(fits);
          if (fits) inside.set(one.id, one);
        } else if (dice < 8) {
          const taken = queue.take();
          expect(taken === undefined).toBe(inside.size === 0);
          if (taken !== undefined) expect(inside.delete(taken.id)).toBe(true);
        } else if (inside.size > 0) {
          const [any] = [...inside.values()].slice(below(inside.size));
          if (any !== undefined) {
            expect(queue.remove(any)).toBe(true);
            inside.delete(any.id);
          }
        }
        expect(queue.size).toBe(inside.size);
      }
      while (inside.size > 0) expect(inside.delete(queue.take()?.id ?? "none")).toBe(true);
      expect(queue.take()).toBeUndefined();
    }
  });
});
