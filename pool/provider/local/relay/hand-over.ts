// What makes a socket that already leads to NATS and gives it to a sandbox's daemon, so that nothing of ours stands
// between the two afterwards: a relay costs each message two changes of processes more.
//
// A socket belongs for ever to the network namespace that it was made in, the machine's here. So that it leads nowhere
// else, whatever is done with it, it has a filter that cannot be taken off: it hears the one address and port. And it is
// given to a sandbox's first process only, which commands cannot look into.

import { dlopen, FFIType, ptr } from "bun:ffi";
import { lookup } from "node:dns/promises";
import { readFileSync } from "node:fs";
import { isIP } from "node:net";

const { i32, i64_fast, u32, ptr: pointer } = FFIType;
const load = () =>
  dlopen("libc.so.6", {
    socket: { args: [i32, i32, i32], returns: i32 },
    connect: { args: [i32, pointer, u32], returns: i32 },
    getsockopt: { args: [i32, i32, i32, pointer, pointer], returns: i32 },
    setsockopt: { args: [i32, i32, i32, pointer, u32], returns: i32 },
    sendmsg: { args: [i32, pointer, i32], returns: i64_fast },
    shutdown: { args: [i32, i32], returns: i32 },
    close: { args: [i32], returns: i32 },
  }).symbols;
let loaded: ReturnType<typeof load> | undefined;
const libc = (): ReturnType<typeof load> => (loaded ??= load());

const AF_INET = 2;
const AF_INET6 = 10;
const STREAM_CLOEXEC_NONBLOCK = 1 | 0o2000000 | 0o4000;
const SOL_SOCKET = 1;
const SO_PEERCRED = 17;
const SO_ATTACH_FILTER = 26;
const SO_LOCK_FILTER = 44;
const IPPROTO_TCP = 6;
const TCP_NODELAY = 1;
const SCM_RIGHTS = 1;
const MSG_NOSIGNAL_DONTWAIT = 0x4000 | 0x40;
const SHUT_RDWR = 2;

/** An address as the kernel takes it. */
export interface Target {
  family: typeof AF_INET | typeof AF_INET6;
  /** 4 or 16 bytes. */
  address: Uint8Array;
  port: number;
}

/** Throws where the host has no address. */
export async function resolveTarget(host: string, port: number): Promise<Target> {
  const { address } = isIP(host) === 0 ? await lookup(host) : { address: host };
  const family = isIP(address) === 6 ? AF_INET6 : AF_INET;
  return { family, address: bytesOf(address), port };
}

function bytesOf(address: string): Uint8Array {
  if (isIP(address) === 4) return Uint8Array.from(address.split("."), Number);
  // The system's own form, without "::" in it, is a URL's host only with it: eight groups are made of both halves.
  const groups = (half: string | undefined): number[] =>
    half === undefined || half === "" ? [] : half.split(":").map((group) => Number.parseInt(group, 16));
  const [plain = ""] = address.replace(/(\d+)\.(\d+)\.(\d+)\.(\d+)$/, dotted).split("%");
  const [head, tail] = plain.split("::");
  const [before, after] = [groups(head), groups(tail)];
  const all = [...before, ...Array<number>(8 - before.length - after.length).fill(0), ...after];
  return Uint8Array.from(all.flatMap((group) => [group >> 8, group & 0xff]));
}

const dotted = (_: string, a: string, b: string, c: string, d: string): string =>
  [Number(a) * 256 + Number(b), Number(c) * 256 + Number(d)].map((group) => group.toString(16)).join(":");

/** `struct sockaddr_in` or `sockaddr_in6`. */
function socketAddress({ family, address, port }: Target): Buffer {
  const bytes = Buffer.alloc(family === AF_INET ? 16 : 28);
  bytes.writeUInt16LE(family, 0);
  bytes.writeUInt16BE(port, 2);
  bytes.set(address, family === AF_INET ? 4 : 8);
  return bytes;
}

/** Classic BPF over a packet that begins at its TCP header: all of it from that address and port, nothing else. */
function filterOf({ family, address, port }: Target): Buffer {
  const LOAD_WORD = 0x20;
  const LOAD_HALF = 0x28;
  const JUMP_EQUAL = 0x15;
  const RETURN = 0x06;
  /** Offsets from here on are the network header's. */
  const NETWORK = 0xfff00000;
  const view = new DataView(address.buffer, address.byteOffset, address.length);
  const source = NETWORK + (family === AF_INET ? 12 : 8);
  const checks: [load: number, at: number, value: number][] = [[LOAD_HALF, 0, port]];
  for (let at = 0; at < address.length; at += 4) checks.push([LOAD_WORD, source + at, view.getUint32(at)]);
  const code: [op: number, otherwise: number, value: number][] = [];
  checks.forEach(([op, at, value], i) => {
    // The last instruction drops.
    code.push([op, 0, at], [JUMP_EQUAL, 2 * (checks.length - i) - 1, value]);
  });
  code.push([RETURN, 0, 0xffffffff], [RETURN, 0, 0]);
  const bytes = Buffer.alloc(8 * code.length);
  code.forEach(([op, otherwise, value], i) => {
    bytes.writeUInt16LE(op, 8 * i);
    bytes.writeUInt8(otherwise, 8 * i + 3);
    bytes.writeUInt32LE(value, 8 * i + 4);
  });
  return bytes;
}

const one = Int32Array.of(1);

function setOption(fd: number, level: number, name: number, value: Buffer | Int32Array): boolean {
  return libc().setsockopt(fd, level, name, ptr(value), value.byteLength) === 0;
}

/** A socket on its way to NATS that leads nowhere else; undefined where it cannot be had. */
export function socketTo(target: Target): number | undefined {
  const fd = libc().socket(target.family, STREAM_CLOEXEC_NONBLOCK, 0);
  if (fd < 0) return undefined;
  const filter = filterOf(target);
  const program = Buffer.alloc(16);
  program.writeUInt16LE(filter.length / 8, 0);
  program.writeBigUInt64LE(BigInt(ptr(filter)), 8);
  const address = socketAddress(target);
  const fit =
    setOption(fd, SOL_SOCKET, SO_ATTACH_FILTER, program) &&
    setOption(fd, SOL_SOCKET, SO_LOCK_FILTER, one) &&
    setOption(fd, IPPROTO_TCP, TCP_NODELAY, one);
  if (!fit) {
    libc().close(fd);
    return undefined;
  }
  // Whether it arrives is seen by who gets it: it reads, or the socket ends.
  libc().connect(fd, ptr(address), address.length);
  return fd;
}

/** Gives `fd` to the other side of the unix socket `to`; false where that did not take it. */
export function give(to: number, fd: number): boolean {
  const data = Buffer.from("\n");
  const vector = Buffer.alloc(16);
  vector.writeBigUInt64LE(BigInt(ptr(data)), 0);
  vector.writeBigUInt64LE(1n, 8);
  const control = Buffer.alloc(24);
  control.writeBigUInt64LE(20n, 0);
  control.writeInt32LE(SOL_SOCKET, 8);
  control.writeInt32LE(SCM_RIGHTS, 12);
  control.writeInt32LE(fd, 16);
  const message = Buffer.alloc(56);
  message.writeBigUInt64LE(BigInt(ptr(vector)), 16);
  message.writeBigUInt64LE(1n, 24);
  message.writeBigUInt64LE(BigInt(ptr(control)), 32);
  message.writeBigUInt64LE(24n, 40);
  return Number(libc().sendmsg(to, ptr(message), MSG_NOSIGNAL_DONTWAIT)) === 1;
}

/** Ends the connection, also where others hold the socket, and closes it here. */
export function cut(fd: number): void {
  libc().shutdown(fd, SHUT_RDWR);
  libc().close(fd);
}

/** A process's pids, outermost namespace first; empty where it is not there. */
function pidsOf(process: number | "self"): string[] {
  try {
    const status = readFileSync(`/proc/${process}/status`, "latin1");
    return /^NSpid:\s+(.+)$/m.exec(status)?.[1]?.split(/\s+/) ?? [];
  } catch {
    return [];
  }
}

let ownDepth: number | undefined;

/** Whether who connected to the unix socket `fd` is the first process of a sandbox. A command can be the first of a
 * pid namespace that it made, but that lies deeper. */
export function isFirstProcess(fd: number): boolean {
  const credentials = new Int32Array(3);
  const length = Uint32Array.of(12);
  if (libc().getsockopt(fd, SOL_SOCKET, SO_PEERCRED, ptr(credentials), ptr(length)) < 0) return false;
  ownDepth ??= pidsOf("self").length;
  const pids = pidsOf(credentials[0] ?? 0);
  return ownDepth > 0 && pids.length === ownDepth + 1 && pids.at(-1) === "1";
}
