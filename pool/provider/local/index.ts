// The provider `local`.
export { type Check, diagnose } from "./diagnose.ts";
export { DAEMON_PROGRAM, needDaemon } from "./faults.ts";
export { type Leftovers, leftovers, removeEmptyGroups } from "./leftovers.ts";
export { createLocalProvider, type LocalOptions, type LocalProvider } from "./provider.ts";
