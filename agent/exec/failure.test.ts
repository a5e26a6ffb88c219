// What the kernel says where it has nothing left to start a command with, which it cannot be made to say without harm to the rest
// of the machine. (Of processes it is in test/chaos/hostile-commands.test.ts, all else in exec.test.ts.)
import { expect, test } from "bun:test";
import { constants } from "node:os";
import { failureOutcome, noPipes } from "./failure.ts";

const { ENOMEM, EMFILE, ENFILE, EAGAIN } = constants.errno;
const attempt = { program: "true", cwd: "/", user: undefined };

test("what there is too little of is named, at whatever step it is missed", () => {
  const reasonAt = (stage: number, errno: number) =>
    failureOutcome({ stage, errno, detail: 0 }, attempt).reason;
  // From the clone to the exec (engine.h).
  for (let stage = 1; stage <= 7; stage++)
    expect([ENOMEM, EMFILE, ENFILE].map((errno) => reasonAt(stage, errno))).toEqual([
      "out_of_memory",
      "out_of_files",
      "out_of_files",
    ]);
  // At the clone, as another user, and at its exec.
  for (const stage of [1, 3, 7]) expect(reasonAt(stage, EAGAIN)).toBe("out_of_pids");
  expect(noPipes(EMFILE, attempt).reason).toBe("out_of_files");
});
