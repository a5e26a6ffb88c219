// Brings a session's shell back from its command: by SIGINT, then harder to whatever of it goes on.
import { send } from "../exec/signals.ts";

/** How long a command has to end by SIGINT, ms, before its processes get SIGTERM, and after the grace SIGKILL. */
const INTERRUPT_MS = 300;
/** How often it is looked whether something new has been started meanwhile, ms. */
export const LOOK_MS = 25;
/** How long the shell has to come back after SIGKILL, ms, before the session is given up. */
const LAST_WAIT_MS = 1000;

export interface Interrupted {
  /** What the command has started, and lives. */
  find(): Promise<number[]>;
  /** SIGINT to the shell's group, and a question whether it is back. */
  interrupt(): void;
  /** That question again, where it is not answered. */
  askAgain(): void;
  /** Whether the shell is back within that time. */
  isBack(ms: number): Promise<boolean>;
  /** The command has not ended meanwhile by itself. */
  readonly runs: boolean;
}

/** The hardest signal that was used. */
type By = "SIGINT" | "SIGTERM" | "SIGKILL";

export class Interruption {
  readonly #command: Interrupted;
  /** All of it that was found, at any look. */
  readonly seen = new Set<number>();
  /** Of these, what the last look was the first to find. */
  readonly #fresh = new Set<number>();

  constructor(command: Interrupted) {
    this.#command = command;
  }

  /** Undefined where the command ended by itself meanwhile. */
  async bringBack(graceMs: number): Promise<{ isBack: boolean; by: By } | undefined> {
    for (const pid of await this.#command.find()) this.seen.add(pid);
    const steps = [
      { by: "SIGINT", ms: INTERRUPT_MS },
      { by: "SIGTERM", ms: graceMs },
      { by: "SIGKILL", ms: LAST_WAIT_MS },
    ] as const;
    let isBack = false;
    let by: By = "SIGINT";
    for (const step of steps) {
      if (isBack || !this.#command.runs) break;
      by = step.by;
      isBack = await this.#step(step.ms, by);
    }
    return this.#command.runs ? { isBack, by } : undefined;
  }

  /** bash goes on with the line after a program that did not end *of* the interrupt (pytest ends of itself, then): so what
   * newly turns up is interrupted as well, and a look later gets the harder signal. */
  async #step(ms: number, by: By): Promise<boolean> {
    const deadline = performance.now() + ms;
    let due = by === "SIGINT" ? [] : await this.#command.find();
    while (this.#command.runs) {
      if (by !== "SIGINT") for (const pid of due) send(pid, by);
      this.#command.interrupt();
      const next = await this.#next(deadline);
      if (typeof next === "boolean") return next;
      due = next;
    }
    return false;
  }

  /** What is due to be signalled, as soon as something new has turned up; or whether the shell was back in time. */
  async #next(deadline: number): Promise<boolean | number[]> {
    for (;;) {
      if (await this.#command.isBack(LOOK_MS)) return true;
      // An interrupt can throw away what a shell has read ahead; asking twice does no harm.
      this.#command.askAgain();
      if (performance.now() > deadline) return false;
      const alive = await this.#command.find();
      if (!this.#command.runs) return false;
      const due = alive.filter((pid) => this.#fresh.has(pid));
      this.#fresh.clear();
      for (const pid of alive) if (!this.seen.has(pid)) this.#fresh.add(pid);
      for (const pid of this.#fresh) this.seen.add(pid);
      if (due.length > 0 || this.#fresh.size > 0) return due;
    }
  }
}
