import { expect, test } from "bun:test";
import { letGo, type ReplyTo, withReply } from "./record.ts";

const at = (n: number): ReplyTo => ({ subject: `rep.${n}`, encoding: "json" });

test("who asks again and again makes neither the record nor what waits for an answer grow: each address more lets one go", () => {
  let replies: ReplyTo[] = [];
  const owed = new Set<string>();
  for (let n = 0; n < 100; n++) {
    const before = replies;
    replies = withReply(before, at(n));
    owed.add(at(n).subject);
    for (const { subject } of letGo(before, replies)) owed.delete(subject);
    expect([...owed]).toEqual(replies.map(({ subject }) => subject));
  }
  expect(replies.length).toBe(16);
});
