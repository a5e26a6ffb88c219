// Signals by name and number, as Linux has them on x86-64 and arm64 (signal(7)).

const NAMES = [
  ...[
    "HUP",
    "INT",
    "QUIT",
    "ILL",
    "TRAP",
    "ABRT",
    "BUS",
    "FPE",
    "KILL",
    "USR1",
    "SEGV",
    "USR2",
    "PIPE",
    "ALRM",
  ],
  ...[
    "TERM",
    "STKFLT",
    "CHLD",
    "CONT",
    "STOP",
    "TSTP",
    "TTIN",
    "TTOU",
    "URG",
    "XCPU",
    "XFSZ",
    "VTALRM",
    "PROF",
  ],
  ...["WINCH", "IO", "PWR", "SYS"],
];
/** Other names of some, which are taken and not told. */
const ALIASES = { IOT: "ABRT", CLD: "CHLD", POLL: "IO" } as const;
/** What libc leaves to programs: the first two real-time signals are its own. */
const SIGRTMIN = 34;
const SIGRTMAX = 64;
const NUMBERS = new Map(NAMES.map((name, index) => [name, index + 1]));

/** Matches the names that have a number, and no others. */
export const SIGNAL_PATTERN = new RegExp(
  `^SIG(${[...NAMES, ...Object.keys(ALIASES)].join("|")}|RTMIN(\\+([0-9]|[12][0-9]|30))?|RTMAX(-([0-9]|[12][0-9]|30))?)$`,
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
  if (!SIGNAL_PATTERN.test(name)) return undefined;
  const short = name.slice("SIG".length);
  const [, end, distance] = /^RT(MIN|MAX)(?:[+-](\d+))?$/.exec(short) ?? [];
  if (end !== undefined)
    return end === "MIN" ? SIGRTMIN + Number(distance ?? 0) : SIGRTMAX - Number(distance ?? 0);
  return NUMBERS.get(short) ?? NUMBERS.get(ALIASES[short as keyof typeof ALIASES]);
}
