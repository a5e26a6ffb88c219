import { expect, test } from "bun:test";
import { amountsOf, minus, parseQuantity, plus } from "./quantity.ts";

test("each of Kubernetes' notations is the number it stands for", () => {
  const cases: [string, number][] = [
    ["64", 64],
    ["500m", 0.5],
    ["1500m", 1.5],
    ["2k", 2000],
    ["1e3", 1000],
    ["1E3", 1000],
    ["512Gi", 512 * 2 ** 30],
    ["129M", 129e6],
    ["0.5", 0.5],
    [".5", 0.5],
    ["100n", 1e-7],
  ];
  for (const [text, number] of cases) expect(parseQuantity(text)).toBeCloseTo(number, 9);
  expect(parseQuantity("1E")).toBe(1e18);
});

test("what is no quantity is none, instead of a number that lets everything fit", () => {
  for (const text of ["", "Gi", "1 Gi", "12gb", "1Gib", "--1", "NaN", "0x10"]) {
    expect(parseQuantity(text)).toBeUndefined();
  }
  expect(amountsOf({ cpu: "many" })).toEqual({ cpu: 0 });
});

test("amounts are added by name, and taken away down to nothing", () => {
  const sum = plus({ cpu: 1, pods: 1 }, { cpu: 2, memory: 5 });
  expect(sum).toEqual({ cpu: 3, pods: 1, memory: 5 });
  expect(minus(sum, { cpu: 4, pods: 1 })).toEqual({ cpu: 0, pods: 0, memory: 5 });
});
