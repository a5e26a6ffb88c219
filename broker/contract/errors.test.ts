import { expect, test } from "bun:test";
import { inspect } from "node:util";
import { NotFoundError } from "./errors.ts";

test("what an error does not know is no property of it, and is not printed; what it knows is", () => {
  const bare = new NotFoundError("no mesh is up");
  expect(Object.keys(bare).sort()).toEqual(["code", "name", "retryable"]);
  expect(inspect(bare)).not.toContain("undefined");
  expect(bare.field).toBeUndefined();
  const full = new NotFoundError("gone", { field: "a", sandbox: "sb-1", reason: "r", started: "no" });
  expect(full).toMatchObject({ field: "a", sandbox: "sb-1", reason: "r", started: "no" });
  expect(full.toWire()).toMatchObject({ field: "a", sandbox: "sb-1", reason: "r", started: "no" });
});
