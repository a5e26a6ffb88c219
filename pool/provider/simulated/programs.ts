// The programs of a virtual sandbox. Each does what its name says, with virtual files and real time.
import { FileError, type OutputStream } from "../../../broker/contract/index.ts";
import type { MemoryFiles } from "./files.ts";

export interface ProgramContext {
  readonly argv: readonly string[];
  readonly env: ReadonlyMap<string, string>;
  readonly files: MemoryFiles;
  cwd: string;
  write(stream: OutputStream, data: Uint8Array | string): Promise<void>;
  /** The next bytes of stdin; undefined at its end. */
  read(): Promise<Uint8Array | undefined>;
  /** Ends early, by a throw, when the command is ended. */
  sleep(ms: number): Promise<void>;
}

/** Answers the exit code. */
export type Program = (context: ProgramContext) => number | Promise<number>;

const usage = async (context: ProgramContext, text: string): Promise<number> => {
  await context.write("stderr", `${context.argv[0]}: usage: ${text}\n`);
  return 2;
};

/** `1.5`, `2s`, `200ms`, `3m`; undefined for anything else. */
export function durationMs(text: string | undefined): number | undefined {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m)?$/.exec(text ?? "");
  if (match === null) return undefined;
  const unit = { ms: 1, s: 1000, m: 60_000 }[match[2] ?? "s"];
  return unit === undefined ? undefined : Number(match[1]) * unit;
}

const ESCAPES: Record<string, string> = { n: "\n", t: "\t", r: "\r", "\\": "\\", "0": "\0" };

function format(template: string, values: readonly string[]): string {
  let next = 0;
  return template
    .replace(/\\([ntr\\0])/g, (_, char: string) => ESCAPES[char] ?? "")
    .replace(/%([sd%])/g, (_, kind: string) =>
      kind === "%" ? "%" : (values[next++] ?? (kind === "d" ? "0" : "")),
    );
}

async function cat(context: ProgramContext): Promise<number> {
  const paths = context.argv.slice(1);
  if (paths.length === 0) {
    for (let data = await context.read(); data !== undefined; data = await context.read()) {
      await context.write("stdout", data);
    }
    return 0;
  }
  let code = 0;
  for (const path of paths) {
    try {
      await context.write("stdout", context.files.contents(context.files.resolve(path, context.cwd)));
    } catch (error) {
      if (!(error instanceof FileError)) throw error;
      await context.write("stderr", `cat: ${path}: ${error.reason}\n`);
      code = 1;
    }
  }
  return code;
}

const MAX_PART = 64 * 1024;

/** `output BYTES [stderr]`: that many bytes, a counted line of 16 at a time, so that a hole or a swap is seen. */
async function output(context: ProgramContext): Promise<number> {
  const bytes = Number(context.argv[1]);
  if (!Number.isSafeInteger(bytes) || bytes < 0) return usage(context, "output BYTES [stderr]");
  const stream = context.argv[2] === "stderr" ? "stderr" : "stdout";
  for (let at = 0; at < bytes; at += MAX_PART) {
    await context.write(stream, pattern(at, Math.min(MAX_PART, bytes - at)));
  }
  return 0;
}

/** Bytes `at` to `at + length` of what `output` writes. */
export function pattern(at: number, length: number): Uint8Array {
  const data = Buffer.allocUnsafe(length);
  for (let i = 0; i < length; ) {
    const line = `${Math.floor((at + i) / 16)}`.padStart(15, "0");
    const skip = (at + i) % 16;
    i += data.write(`${line}\n`.slice(skip), i, "latin1");
  }
  return data;
}

export const PROGRAMS: ReadonlyMap<string, Program> = new Map<string, Program>([
  ["true", () => 0],
  [":", () => 0],
  ["false", () => 1],
  ["exit", ({ argv }) => Number(argv[1] ?? 0) & 0xff],
  ["fail", ({ argv }) => Number(argv[1] ?? 1) & 0xff],
  ["pwd", (context) => context.write("stdout", `${context.cwd}\n`).then(() => 0)],
  ["echo", (context) => context.write("stdout", `${context.argv.slice(1).join(" ")}\n`).then(() => 0)],
  [
    "printf",
    (context) => {
      const [, template, ...values] = context.argv;
      if (template === undefined) return usage(context, "printf FORMAT [VALUE…]");
      return context.write("stdout", format(template, values)).then(() => 0);
    },
  ],
  [
    "env",
    async (context) => {
      for (const [name, value] of context.env) await context.write("stdout", `${name}=${value}\n`);
      return 0;
    },
  ],
  ["cat", cat],
  ["output", output],
  [
    "sleep",
    async (context) => {
      const ms = durationMs(context.argv[1]);
      if (ms === undefined) return usage(context, "sleep SECONDS (or 200ms, 3s, 1m)");
      await context.sleep(ms);
      return 0;
    },
  ],
  // Never ends by itself.
  ["hang", (context) => context.sleep(2 ** 31 - 1).then(() => 0)],
]);
