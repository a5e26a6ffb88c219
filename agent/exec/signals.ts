// Signals by name and number, as Linux has them on x86-64 and arm64.

const NAMES = [
  ...[
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGILL",
    "SIGTRAP",
    "SIGABRT",
    "SIGBUS",
    "SIGFPE",
    "SIGKILL",
    "SIGUSR1",
  ],
  ...["SIGSEGV", "SIGUSR2", "SIGPIPE", "SIGALRM", "SIGTERM", "SIGSTKFLT", "SIGCHLD", "SIGCONT", "SIGSTOP"],
  ...["SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGXCPU", "SIGXFSZ", "SIGVTALRM", "SIGPROF", "SIGWINCH"],
  ...["SIGIO", "SIGPWR", "SIGSYS"],
];
const NUMBERS = new Map(NAMES.map((name, index) => [name, index + 1]));
/** What libc leaves to programs: the first two real-time signals are its own. */
const SIGRTMIN = 34;
const SIGRTMAX = 64;

export const SIGINT = 2;
export const SIGKILL = 9;
export const SIGSTOP = 19;
export const SIGTERM = 15;
export const SIGCONT = 18;

/** "SIGKILL" for 9, "SIGRTMIN+3" for 37. */
export function signalName(number: number): string {
  const name = NAMES[number - 1];
  if (name !== undefined) return name;
  return number < SIGRTMIN
    ? `SIG${number}`
    : number === SIGRTMIN
      ? "SIGRTMIN"
      : `SIGRTMIN+${number - SIGRTMIN}`;
}

/** The number of a name; undefined where Linux has none such. */
export function signalNumber(name: string): number | undefined {
  const known = NUMBERS.get(name);
  if (known !== undefined) return known;
  const realTime = /^SIGRT(?:(MIN)(?:\+(\d{1,2}))?|(MAX)(?:-(\d{1,2}))?)$/.exec(name);
  if (realTime === null) return undefined;
  const number = realTime[1] ? SIGRTMIN + Number(realTime[2] ?? 0) : SIGRTMAX - Number(realTime[4] ?? 0);
  return number >= SIGRTMIN && number <= SIGRTMAX ? number : undefined;
}
