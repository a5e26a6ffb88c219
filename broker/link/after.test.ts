import { expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { after } from "./after.ts";

test("a time that is longer than the runtime's timers bear is waited for whole, and can be taken back", async () => {
  const begun = performance.now();
  const told: string[] = [];
  const clear = after(60, () => told.push("taken back"), 7);
  await new Promise<void>((go) => after(20, go, 7));
  clear();
  await new Promise<void>((go) => after(90, go, 7));
  // Each of the runtime's timers may come a part of a millisecond early.
  expect(performance.now() - begun).toBeGreaterThanOrEqual(100);
  expect(told).toEqual([]);
});

test("no time that a caller gives goes to a timer of the runtime's", () => {
  const root = new URL("../..", import.meta.url).pathname;
  const found = ["agent", "broker", "pool", "sdk", "deploy"]
    .flatMap((room) => readdirSync(`${root}/${room}`, { recursive: true }).map((path) => `${room}/${path}`))
    .filter((path) => path.endsWith(".ts") && !/node_modules|\.test\.ts$/.test(path))
    .flatMap((path) => {
      const text = readFileSync(`${root}/${path}`, "utf8");
      // As the wire, the settings and the SDKs' options name what others give: constants are in capitals.
      const given =
        /set(?:Timeout|Interval)\([^;]*?,\s*(?:this\.#?|options\.|\w+\.)*(\w*(?:_ms|[tT]imeoutMs)),?\s*\)/g;
      return [...text.matchAll(given)].map(([, name]) => `${path}: ${name}`);
    });
  expect(found).toEqual([]);
});
