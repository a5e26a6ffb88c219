// Runs a command where a filter of system calls answers clone3 with ENOSYS, as older container engines do, and prints what
// it says.
import { dlopen, FFIType, ptr } from "bun:ffi";

const PR_SET_NO_NEW_PRIVS = 38;
const PR_SET_SECCOMP = 22;
const SECCOMP_MODE_FILTER = 2;
const CLONE3 = 435;
const ENOSYS = 38;
/** Of a classic BPF program: load the call's number, compare, return. */
const [LOAD, JUMP_IF_EQUAL, RETURN] = [0x20, 0x15, 0x06];
const [ALLOW, FAIL] = [0x7fff_0000, 0x0005_0000];

function refuseClone3(): void {
  const { symbols } = dlopen("libc.so.6", {
    prctl: { args: [FFIType.i32, FFIType.u64, FFIType.ptr, FFIType.u64, FFIType.u64], returns: FFIType.i32 },
  });
  const steps = Buffer.alloc(4 * 8);
  [
    [LOAD, 0, 0, 0],
    [JUMP_IF_EQUAL, 0, 1, CLONE3],
    [RETURN, 0, 0, FAIL | ENOSYS],
    [RETURN, 0, 0, ALLOW],
  ].forEach(([code = 0, yes = 0, no = 0, value = 0], i) => {
    steps.writeUInt16LE(code, i * 8);
    steps.writeUInt8(yes, i * 8 + 2);
    steps.writeUInt8(no, i * 8 + 3);
    steps.writeUInt32LE(value, i * 8 + 4);
  });
  const program = Buffer.alloc(16);
  program.writeUInt16LE(4, 0);
  program.writeBigUInt64LE(BigInt(ptr(steps)), 8);
  if (symbols.prctl(PR_SET_NO_NEW_PRIVS, 1, null, 0, 0) < 0) throw new Error("no_new_privs was refused");
  if (symbols.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ptr(program), 0, 0) < 0)
    throw new Error("the filter was refused");
}

refuseClone3();
const { run, testCommands } = await import("../exec/testing.ts");
const { stdout } = await run(await testCommands(), { argv: ["cat", "/proc/self/status"] });
process.stdout.write(stdout);
process.exit(0);
