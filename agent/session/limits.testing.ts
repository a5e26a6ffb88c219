// For tests: what a session does where this process may have no more of something.
import { dlopen, FFIType, ptr } from "bun:ffi";
import { closeSync, openSync, readdirSync } from "node:fs";

const { i32, ptr: pointer } = FFIType;
const libc = dlopen("libc.so.6", { prlimit: { args: [i32, i32, pointer, pointer], returns: i32 } }).symbols;
/** As in resource.h. */
const RESOURCE = { fsize: 1, nofile: 7 } as const;

/** Runs `act` with the soft limit that low, and puts it back. */
export async function limited<T>(
  resource: keyof typeof RESOURCE,
  soft: number,
  act: () => Promise<T>,
): Promise<T> {
  const before = new BigUint64Array(2);
  const set = (limits: BigUint64Array): number =>
    libc.prlimit(0, RESOURCE[resource], ptr(limits), ptr(new BigUint64Array(2)));
  if (libc.prlimit(0, RESOURCE[resource], null, ptr(before)) !== 0) throw new Error("no limit is told");
  if (set(new BigUint64Array([BigInt(soft), before[1] ?? 0n])) !== 0) throw new Error("no limit may be set");
  try {
    return await act();
  } finally {
    set(before);
  }
}

/** Descriptors of this process that are open. */
export const openDescriptors = (): number => readdirSync("/proc/self/fd").length;

/** Runs `act` while this process has `free` descriptors left. */
export function withFree<T>(free: number, act: () => Promise<T>): Promise<T> {
  const highest = Math.max(...readdirSync("/proc/self/fd").map(Number));
  return limited("nofile", highest + 1 + free, async () => {
    const filled: number[] = [];
    try {
      for (;;) filled.push(openSync("/dev/null", "r"));
    } catch {
      // Full.
    }
    for (const file of filled.splice(filled.length - free)) closeSync(file);
    try {
      return await act();
    } finally {
      for (const file of filled) closeSync(file);
    }
  });
}
