// A trainer as a process of its own, in TypeScript or Python, told by steps what it sees.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import * as v from "valibot";

const ROOT = join(import.meta.dir, "..", "..");
const VENV = join(ROOT, ".cache", "venv");

export type Language = "typescript" | "python";

export interface Order {
  lease_ms: number;
  count?: number;
  command?: string;
}

const Step = v.looseObject({
  step: v.string(),
  sandboxes: v.optional(v.array(v.string())),
  code: v.optional(v.string()),
  started: v.optional(v.nullable(v.string())),
  stdout: v.optional(v.string()),
  sandbox: v.optional(v.string()),
  text: v.optional(v.string()),
});
export type Step = v.InferOutput<typeof Step>;

/** Python with the SDK's dependencies, as sdk/python/test installs them. */
export function pythonEnvironment(): { program: string; path: string } {
  const own = join(VENV, "bin", "python");
  const path = [join(ROOT, "sdk", "python"), join(VENV, "packages")].join(":");
  return { program: existsSync(own) ? own : "python3", path };
}

export class Client implements AsyncDisposable {
  readonly process: ChildProcess;
  readonly #steps: Step[] = [];
  readonly #exited: Promise<unknown>;
  #killed = false;
  #stderr = "";
  #wake: () => void = () => undefined;

  constructor(language: Language, home: string, order: Order) {
    const { program, path } = pythonEnvironment();
    const argv =
      language === "python"
        ? [program, join(import.meta.dir, "client.py")]
        : [process.execPath, join(import.meta.dir, "client.ts")];
    const [command = "", ...args] = [...argv, JSON.stringify(order)];
    const env = { ...process.env, SANDMESH_HOME: home, PYTHONPATH: path };
    this.process = spawn(command, args, { env, stdio: ["pipe", "pipe", "pipe"] });
    this.#exited = once(this.process, "close");
    if (this.process.stdout === null) throw new Error("no pipe");
    createInterface({ input: this.process.stdout }).on("line", (line) => {
      // The last line of one that is killed may be half a line.
      if (this.#killed) return;
      this.#steps.push(v.parse(Step, JSON.parse(line)));
      this.#wake();
    });
    this.process.stderr?.on("data", (data: Buffer) => {
      this.#stderr += data.toString();
    });
  }

  get pid(): number {
    return this.process.pid ?? 0;
  }

  /** The first `count` of that step; throws where the program ends before. */
  async steps(name: string, count = 1): Promise<Step[]> {
    const ended = this.#exited.then(() => true);
    for (;;) {
      const found = this.seen(name);
      if (found.length >= count) return found.slice(0, count);
      const more = new Promise<false>((go) => {
        this.#wake = () => go(false);
      });
      if (await Promise.race([more, ended]))
        throw new Error(`the client ended before ${count} ${name}: ${this.#stderr}`);
    }
  }

  /** Those of that step so far. */
  seen(name: string): Step[] {
    return this.#steps.filter(({ step }) => step === name);
  }

  async step(name: string): Promise<Step> {
    const [one] = await this.steps(name);
    if (one === undefined) throw new Error(`no ${name}`);
    return one;
  }

  /** A shell line in its first sandbox; what it saw. */
  async ask(line: string): Promise<Step> {
    const before = this.seen("result").length;
    this.process.stdin?.write(`${line}\n`);
    const results = await this.steps("result", before + 1);
    return results.at(-1) ?? { step: "none" };
  }

  async kill(): Promise<void> {
    this.#killed = true;
    this.process.kill("SIGKILL");
    await this.#exited;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }
}
