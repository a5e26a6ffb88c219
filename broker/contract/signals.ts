// Signals by name and number, as Linux has them on x86-64 and arm64 (signal(7)).

/** From 1 on. */
const NAMES = [
  "HUP INT QUIT ILL TRAP ABRT BUS FPE KILL USR1 SEGV USR2 PIPE ALRM TERM STKFLT CHLD CONT STOP TSTP TTIN",
  "TTOU URG XCPU XFSZ VTALRM PROF WINCH IO PWR SYS",
].flatMap((names) => names.split(" "));
/** By the other names of some, too, which are taken and not told. */
const NUMBERS = new Map(NAMES.map((name, index) => [name, index + 1]))
  .set("IOT", 6)
  .set("CLD", 17)
  .set("POLL", 29);
/** What libc leaves to programs: the first two real-time signals are its own. */
const SIGRTMIN = 34;
const SIGRTMAX = 64;

/** Matches the names that have a number, and no others. */
export const SIGNAL_PATTERN = new RegExp(
  `^SIG(${[...NUMBERS.keys()].join("|")}|RTMIN(\\+([0-9]|[12][0-9]|30))?|RTMAX(-([0-9]|[12][0-9]|30))?)$`,
);

/** "SIGKILL" for 9, "SIGRTMIN+3" for 37. */
export function signalName(number: number): string {
  const name = NAMES[number - 1];
  if (name !== undefined) return `SIG${name}`;
  if (number < SIGRTMIN) return `SIG${number}`;
  return number === SIGRTMIN ? "SIGRTMIN" : `SIGRTMIN+${number - SIGRTMIN}`;
}

/** The number of a name; undefined where Linux has none such. */
export function signalNumber(name: string): number | undefined {
  const [, short, , above, , below] = SIGNAL_PATTERN.exec(name) ?? [];
  if (short?.startsWith("RTMIN")) return SIGRTMIN + Number(above ?? 0);
  if (short?.startsWith("RTMAX")) return SIGRTMAX - Number(below ?? 0);
  return short === undefined ? undefined : NUMBERS.get(short);
}
