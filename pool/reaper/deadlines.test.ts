import { describe, expect, test } from "bun:test";
import { Deadlines } from "./deadlines.ts";

function clocked() {
  const clock = { now: 0 };
  const fired: [string, number][] = [];
  const deadlines = new Deadlines(
    (key, now) => fired.push([key, now]),
    () => clock.now,
  );
  const at = (now: number): [string, number][] => {
    clock.now = now;
    deadlines.run();
    return fired.splice(0);
  };
  return { deadlines, at };
}

describe("deadlines", () => {
  test("one that was put off fires once, at its new time", () => {
    const { deadlines, at } = clocked();
    deadlines.set("a", 1000);
    deadlines.set("a", 3000);
    deadlines.set("a", 2000);
    expect(at(1500)).toEqual([]);
    expect(at(2000)).toEqual([["a", 2000]]);
    expect(at(9000)).toEqual([]);
    deadlines.close();
  });

  test("one that was moved forward does not fire again at its old time", () => {
    const { deadlines, at } = clocked();
    deadlines.set("a", 5000);
    deadlines.set("a", 1000);
    expect(at(1000)).toEqual([["a", 1000]]);
    expect(at(6000)).toEqual([]);
    deadlines.set("a", 7000);
    deadlines.clear("a");
    expect(at(8000)).toEqual([]);
    deadlines.close();
  });

  test("far deadlines that were cleared do not pile up", () => {
    const { deadlines, at } = clocked();
    for (let i = 0; i < 20_000; i++) {
      deadlines.set(`k${i}`, 86_400_000 + i);
      if (i >= 100) deadlines.clear(`k${i - 100}`);
    }
    expect(deadlines.size).toBe(100);
    expect(deadlines.held).toBeLessThan(1500);
    expect(at(90_000_000).length).toBe(100);
    deadlines.close();
  });

  test("random sets, moves and clears fire exactly what a sorted list would", () => {
    let seed = 7;
    const next = (n: number): number => {
      seed = (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff;
      return seed % n;
    };
    const { deadlines, at } = clocked();
    const model = new Map<string, number>();
    for (let now = 0; now < 20_000; now += next(7)) {
      const key = `k${next(50)}`;
      const dice = next(10);
      if (dice < 6) {
        const when = now + 1 + next(300);
        deadlines.set(key, when);
        model.set(key, when);
      } else if (dice < 7) {
        deadlines.clear(key);
        model.delete(key);
      } else {
        const due = [...model].filter(([, when]) => when <= now).map(([name]) => name);
        for (const name of due) model.delete(name);
        expect(
          at(now)
            .map(([name]) => name)
            .sort(),
        ).toEqual(due.sort());
      }
    }
    expect(deadlines.size).toBe(model.size);
    deadlines.close();
  });

  test("the real timer fires the earliest of many, and closing leaves no timer", async () => {
    const fired: string[] = [];
    const { promise, resolve } = Promise.withResolvers<void>();
    const deadlines = new Deadlines((key) => {
      fired.push(key);
      resolve();
    });
    const now = Date.now();
    deadlines.set("late", now + 3_600_000);
    deadlines.set("far", now + 2 ** 40);
    deadlines.set("soon", now + 5);
    await promise;
    expect(fired).toEqual(["soon"]);
    deadlines.close();
  });
});
