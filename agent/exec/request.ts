// A command as the engine wants it: one block of numbers and strings (engine.h, `struct request`).
import { endianness } from "node:os";
import type { ParsedExec } from "../../broker/endpoint/executor.ts";
import { bytesOf, type Environment, MARKER } from "../process/environment.ts";
import type { User } from "./user.ts";

/** As in engine.h. */
const FLAG = {
  merge: 1,
  pty: 2,
  stdin: 4,
  waitAll: 8,
  user: 16,
  umask: 32,
  nice: 64,
  given: 128,
  spare: 256,
} as const;
/** Linux's numbers of setrlimit's resources. */
const RESOURCE = {
  cpu: 0,
  fsize: 1,
  data: 2,
  stack: 3,
  core: 4,
  nproc: 6,
  nofile: 7,
  memlock: 8,
  as: 9,
} as const;
const FIXED_WORDS = 20;
const NOT_GIVEN = [0, 0, 0, 0, 0, 0] as const;

if (endianness() !== "LE") throw new Error("the engine is written for little-endian machines");

export interface Launch {
  id: string;
  argv: readonly string[];
  cwd: string;
  user: User | undefined;
  /** A pipe (or the terminal) for stdin; without it, /dev/null. */
  stdin: boolean;
  /** A shell line, for which a spare shell may stand ready (native/spare.c decides whether it may be used). */
  spare?: boolean;
  /** Descriptors of the caller's that become 0 to 5, in place of pipes of the engine's. */
  given?: readonly [number, number, number, number, number, number];
  /** Descriptor of the cgroup's folder that it is born in; without it, the daemon's own. */
  cgroup?: number | undefined;
  /** Of the one in which the spare shell waits, or is to wait from now on. Where it becomes this command, the next one waits
   * in `cgroup`. */
  spareCgroup?: number | undefined;
}

/** The base environment, encoded once: most commands change nothing of it. */
export class BaseEnvironment {
  readonly variables: Environment;
  readonly encoded: string;
  constructor(variables: Environment) {
    this.variables = variables;
    this.encoded = encodeVariables(variables);
  }
}
const encodeVariables = (variables: Environment): string => {
  let encoded = "";
  for (const [name, value] of variables) encoded += `${name}=${value}\0`;
  return encoded;
};

/** The command's environment in the engine's form, and how many variables that is. */
function environment(request: ParsedExec, launch: Launch, base: BaseEnvironment): [string, number] {
  const marker = `${MARKER}=${launch.id}\0`;
  const { env, env_replace, pty } = request;
  const { user } = launch;
  if (env === undefined && !env_replace && pty === undefined && user === undefined)
    return [base.encoded + marker, base.variables.size + 1];
  const variables = new Map(env_replace ? [] : base.variables);
  if (pty !== undefined) variables.set("TERM", pty.term);
  if (user !== undefined && !env_replace) {
    variables.set("HOME", bytesOf(user.home));
    if (user.name !== undefined)
      for (const name of ["USER", "LOGNAME"]) variables.set(name, bytesOf(user.name));
  }
  for (const [name, value] of Object.entries(env ?? {})) {
    if (value === null) variables.delete(bytesOf(name));
    else variables.set(bytesOf(name), bytesOf(value));
  }
  variables.delete(MARKER);
  return [encodeVariables(variables) + marker, variables.size + 1];
}

export function packRequest(request: ParsedExec, launch: Launch, base: BaseEnvironment): Buffer {
  const { user } = launch;
  const limits: [number, number][] = [];
  for (const [name, limit] of Object.entries(request.rlimits ?? {}))
    if (limit !== undefined) limits.push([RESOURCE[name as keyof typeof RESOURCE], limit]);
  const groups = user?.groups ?? [];
  const stringsAt = 4 * (FIXED_WORDS + groups.length + 3 * limits.length);
  const [variables, variableCount] = environment(request, launch, base);
  let argv = "";
  for (const argument of launch.argv) argv += `${argument}\0`;
  const head = Buffer.from(`${launch.cwd}\0${argv}`);
  const packed = Buffer.allocUnsafe(stringsAt + head.length + variables.length);
  let flags = 0;
  if (request.merge) flags |= FLAG.merge;
  if (request.pty !== undefined) flags |= FLAG.pty;
  if (launch.stdin) flags |= FLAG.stdin;
  if (request.wait === "all") flags |= FLAG.waitAll;
  if (user !== undefined) flags |= FLAG.user;
  if (request.umask !== undefined) flags |= FLAG.umask;
  if (request.nice !== undefined) flags |= FLAG.nice;
  if (launch.given !== undefined) flags |= FLAG.given;
  if (launch.spare === true) flags |= FLAG.spare;
  let at = 0;
  const word = (value: number): void => {
    at = packed.writeUInt32LE(value >>> 0, at);
  };
  word(flags);
  word(user?.uid ?? 0);
  word(user?.gid ?? 0);
  word(groups.length);
  word(request.umask ?? 0);
  word(request.nice ?? 0);
  word(limits.length);
  word(request.pty?.rows ?? 0);
  word(request.pty?.cols ?? 0);
  word(launch.argv.length);
  word(variableCount);
  word(stringsAt);
  for (const fd of launch.given ?? NOT_GIVEN) word(fd);
  word(launch.cgroup ?? -1);
  word(launch.spareCgroup ?? -1);
  for (const group of groups) word(group);
  for (const [resource, limit] of limits) {
    word(resource);
    word(limit % 2 ** 32);
    word(Math.floor(limit / 2 ** 32));
  }
  head.copy(packed, stringsAt);
  packed.write(variables, stringsAt + head.length, "latin1");
  return packed;
}

/** Of a request that the engine has begun: whether the spare shell has become the command. */
export const tookSpare = (begun: Buffer): boolean => begun.readInt32LE(4) === 1;
