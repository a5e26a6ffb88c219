/** A program's words so that the kernel ends it with this process, whatever ends this one (prctl(2), PR_SET_PDEATHSIG). */
export const endingWithUs = (argv: readonly string[], signal: "KILL" | "TERM" = "KILL"): string[] => [
  "setpriv",
  "--pdeathsig",
  signal,
  "--",
  ...argv,
];
