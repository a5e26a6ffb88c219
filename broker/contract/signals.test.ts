// The table against the kernel's names, as this machine's libc has them.
import { expect, test } from "bun:test";
import { constants } from "node:os";
import { SIGNAL_PATTERN, signalName, signalNumber } from "./signals.ts";

test("each name of a signal has its number, and each number its name back", () => {
  for (const [name, number] of Object.entries(constants.signals))
    expect(signalNumber(name), name).toBe(number);
  const usable = Array.from({ length: 64 }, (_, i) => i + 1).filter((n) => n < 32 || n > 33);
  expect(usable.map((n) => signalNumber(signalName(n)))).toEqual(usable);
  expect(signalNumber("SIGRTMAX-30")).toBe(signalNumber("SIGRTMIN"));
  expect(["SIGIOT", "SIGCLD", "SIGPOLL"].map((name) => signalName(signalNumber(name) ?? 0))).toEqual([
    "SIGABRT",
    "SIGCHLD",
    "SIGIO",
  ]);
});

test("what is no signal's name has no number: libc's own, one past the last, a number, other letters", () => {
  for (const name of [
    "SIG0",
    "SIG32",
    "SIGRTMIN-1",
    "SIGRTMIN+31",
    "SIGRTMAX-31",
    "SIGRTMIN+",
    "SIGRT",
    "SIGRTMAX+0",
  ]) {
    expect(signalNumber(name), name).toBeUndefined();
    expect(SIGNAL_PATTERN.test(name), name).toBe(false);
  }
  for (const name of ["SIGNOPE", "INT", "sigint", "SIGINT\n", "SIGconstructor"])
    expect(signalNumber(name), name).toBeUndefined();
});
