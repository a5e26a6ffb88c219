// Which commands are known, and for how long: at most once by id, within bounds of number and of memory.
import { BusyError, ConflictError, UnknownCommandError, uuidV7Time } from "../contract/index.ts";
import type { Command, Holder } from "./command.ts";
import { sameContent } from "./content.ts";
import type { ParsedExec } from "./executor.ts";
import { Forgotten } from "./forgotten.ts";
import type { Retention } from "./retention.ts";

export class Commands implements Holder {
  readonly #limits: Retention;
  readonly #running = new Map<string, Command>();
  /** In the order in which they ended. */
  readonly #ended = new Map<string, Command>();
  /** Of those, in the same order, the ones whose output is held. */
  readonly #withOutput = new Map<string, Command>();
  readonly #forgotten: Forgotten;
  #held = 0;

  constructor(limits: Retention) {
    this.#limits = limits;
    this.#forgotten = new Forgotten(limits.forgotten);
  }

  get heldBytes(): number {
    return this.#held;
  }

  get runningCount(): number {
    return this.#running.size;
  }

  find(id: string): Command | undefined {
    return this.#running.get(id) ?? this.#ended.get(id);
  }

  /** Throws UnknownCommandError where there is none. */
  need(id: string, sandbox: string): Command {
    const command = this.find(id);
    if (command === undefined) throw unknown(id, sandbox);
    return command;
  }

  /** The command that was begun under this id; undefined where it may be begun. Throws ConflictError for other
   * content under the same id, and UnknownCommandError for an id that may have been forgotten. */
  earlier(id: string, request: ParsedExec, sandbox: string): Command | undefined {
    const command = this.find(id);
    if (command === undefined) {
      const forgotten = this.#forgotten.has(id);
      if (forgotten === "perhaps") throw tooOld(id, sandbox);
      if (forgotten === "yes") throw unknown(id, sandbox);
      return undefined;
    }
    if (!sameContent(command.content, request)) {
      throw new ConflictError(`the command ${id} was begun with other content`, { field: "id", sandbox });
    }
    return command;
  }

  add(command: Command): void {
    if (this.#running.size >= this.#limits.running) {
      throw new BusyError(`${this.#limits.running} commands run already`, { started: "no" });
    }
    this.#running.set(command.id, command);
  }

  list(): Iterable<Command> {
    return [...this.#running.values(), ...this.#ended.values()];
  }

  running(): Iterable<Command> {
    return this.#running.values();
  }

  // Holder

  room(wanted: number): number {
    if (this.#held + wanted > this.#limits.bytes) this.#shrink(this.#limits.bytes - wanted);
    return Math.max(0, Math.min(wanted, this.#limits.bytes - this.#held));
  }

  get tight(): boolean {
    return this.#held > this.#limits.bytes;
  }

  held(bytes: number): void {
    const before = this.tight;
    this.#held += bytes;
    if (bytes > 0 && this.tight) this.#shrink(this.#limits.bytes);
    // Those that are silent just now, too, hold what nobody needs.
    if (this.tight && !before)
      queueMicrotask(() => {
        for (const command of this.#running.values()) command.regulate();
      });
  }

  finished(command: Command): void {
    this.#running.delete(command.id);
    this.#ended.set(command.id, command);
    if (command.stdout.held + command.stderr.held > 0) this.#withOutput.set(command.id, command);
    this.#shrink(this.#limits.bytes);
    while (this.#ended.size > this.#limits.ids) this.#forgetOldest();
  }

  #shrink(bytes: number): void {
    for (const [id, command] of this.#withOutput) {
      if (this.#held <= bytes && this.#withOutput.size <= this.#limits.outputs) return;
      // What a reader is just being sent is let go of when it has it, or is given up.
      if (command.listeners.size > 0) continue;
      this.#withOutput.delete(id);
      this.#held -= command.dropOutput();
    }
  }

  #forgetOldest(): void {
    for (const [id, command] of this.#ended) {
      this.#ended.delete(id);
      if (this.#withOutput.delete(id)) this.#held -= command.dropOutput();
      this.#forgotten.add(id, command.begunAt);
      return;
    }
  }
}

/** Of one that its client has just made, its clock is behind that of the sandbox's machine by as much. */
function tooOld(id: string, sandbox: string): UnknownCommandError {
  const made = new Date(uuidV7Time(id)).toISOString();
  return new UnknownCommandError(
    `the command ${id} may have run: its id was made at ${made}, and what ran then is forgotten here, where it is ${new Date().toISOString()} now`,
    { sandbox, started: "unknown" },
  );
}

export function unknown(id: string, sandbox: string): UnknownCommandError {
  return new UnknownCommandError(
    `the daemon does not know the command ${id}, or no longer; it may have run`,
    {
      sandbox,
      started: "unknown",
    },
  );
}
