// Ids of commands that are forgotten, made by clocks that differ.
import { describe, expect, test } from "bun:test";
import { newUuidV7, UUID_V7_PATTERN } from "../contract/index.ts";
import { Forgotten } from "./forgotten.ts";

const NOW = Date.now();
const HOUR = 3600_000;
/** Of that time, whatever was made before. */
function idAt(ms: number): string {
  const time = ms.toString(16).padStart(12, "0");
  const id = `${time.slice(0, 8)}-${time.slice(8)}${newUuidV7().slice(13)}`;
  if (!UUID_V7_PATTERN.test(id)) throw new Error(`no id: ${id}`);
  return id;
}

describe("ids of forgotten commands", () => {
  test("a client whose clock is ahead does not have the new ids of others refused", () => {
    const forgotten = new Forgotten(10);
    const ahead = Array.from({ length: 100 }, (_, i) => idAt(NOW + HOUR + i));
    for (const [i, id] of ahead.entries()) forgotten.add(id, NOW + i);
    expect(forgotten.has(idAt(NOW + 100))).toBe("no");
    expect(forgotten.has(idAt(NOW + HOUR))).toBe("no");
    expect(forgotten.has(ahead.at(-1) ?? "")).toBe("yes");
    // Made before what ran at first: by the daemon's clock, not theirs.
    expect(forgotten.has(idAt(NOW + 5))).toBe("perhaps");
  });

  test("one whose clock is behind is refused nothing as long as each id itself is remembered", () => {
    const forgotten = new Forgotten(1000);
    for (let i = 0; i < 2000; i++) forgotten.add(idAt(NOW + i), NOW + i);
    expect(forgotten.has(idAt(NOW - HOUR))).toBe("no");
    for (let i = 0; i < 1000; i++) forgotten.add(idAt(NOW + i), NOW + i);
    expect(forgotten.has(idAt(NOW - HOUR))).toBe("perhaps");
  });

  test("of tens of thousands each of the last is known, and no other", () => {
    const forgotten = new Forgotten(8192);
    const ids = Array.from({ length: 30_000 }, () => idAt(NOW));
    for (const id of ids) forgotten.add(id, NOW);
    expect(ids.slice(-8192).filter((id) => forgotten.has(id) !== "yes")).toEqual([]);
    expect(ids.filter((id) => forgotten.has(id) === "no")).toEqual([]);
    expect(
      Array.from({ length: 30_000 }, () => idAt(NOW + 1)).filter((id) => forgotten.has(id) !== "no"),
    ).toEqual([]);
  });

  test("ids that differ in their time and counter only, as some generators make them, are told apart", () => {
    const forgotten = new Forgotten(8192);
    const idOf = (i: number) =>
      `${idAt(NOW + (i >> 4)).slice(0, 14)}7${(i & 15).toString(16).padStart(3, "0")}-8000-0242ac120002`;
    for (let i = 0; i < 8000; i++) forgotten.add(idOf(i), NOW + (i >> 4));
    const known = Array.from({ length: 16_000 }, (_, i) => forgotten.has(idOf(i)));
    expect(known).toEqual([...Array(8000).fill("yes"), ...Array(8000).fill("no")]);
  });
});
