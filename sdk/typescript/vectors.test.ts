// The vectors that all SDKs share, through what a user of this one sees.
import { expect, test } from "bun:test";
import { fromWire, type WireError } from "../../broker/contract/index.ts";
import errors from "../../broker/contract/vectors/errors.json";
import messages from "../../broker/contract/vectors/messages.json";
import outcomes from "../../broker/contract/vectors/outcomes.json";
import { parseFrame } from "./command/frames.ts";
import { CommandEnd } from "./command/result.ts";
import * as sdk from "./mod.ts";

const hex = (text: string) => Buffer.from(text, "hex");

test("every error of the wire is a class of the SDK's, with all it says", () => {
  const exported = new Map<string, unknown>(Object.entries(sdk));
  for (const { class: name, wire } of errors.classes) {
    const error = fromWire(wire as WireError);
    expect(exported.get(name)).toBe(error.constructor);
    expect(error.toWire()).toEqual(wire as WireError);
    expect(error).toBeInstanceOf(sdk.SandmeshError);
  }
});

test("every frame of a command is read from both encodings, and a bad one is refused with its field", () => {
  for (const kind of ["frame.chunk", "frame.started", "frame.end"] as const) {
    for (const { msgpack, json } of messages[kind].valid) {
      expect(parseFrame(hex(msgpack)).type).toBe(kind.slice(6) as "chunk");
      expect(parseFrame(Buffer.from(json))).toEqual(parseFrame(hex(msgpack)));
    }
    for (const { name, msgpack, code } of messages[kind].invalid) {
      const failure = (() => {
        try {
          return parseFrame(hex(msgpack));
        } catch (error) {
          return error;
        }
      })();
      expect([name, failure]).toEqual([name, expect.objectContaining({ code })]);
    }
  }
});

test("only an exit has an exit code, and only 0 is ok: a signal or a lost limit is never a number", () => {
  const totals = {
    stdout: { total_bytes: 0, dropped_bytes: 0 },
    stderr: { total_bytes: 0, dropped_bytes: 0 },
  };
  for (const { outcome, describe } of outcomes) {
    const frame = {
      type: "end",
      id: "",
      incarnation: "",
      outcome: outcome as sdk.Outcome,
      totals,
      duration_ms: 0,
    };
    const end = new CommandEnd(frame as ConstructorParameters<typeof CommandEnd>[0], "sb-1");
    expect(sdk.describeOutcome(end.outcome)).toBe(describe);
    expect(end.exitCode).toBe(outcome.type === "exited" ? outcome.code : undefined);
    expect(end.ok).toBe(describe === "exited 0");
  }
});
