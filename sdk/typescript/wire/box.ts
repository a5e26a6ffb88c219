// One sandbox as the SDK's inside sees it: how to reach it, and how to find out whether it is still there.
import {
  LeaseLostError,
  SandboxLostError,
  SandmeshError,
  type State,
  UnreachableError,
} from "../../../broker/contract/index.ts";
import type { Caller, Target } from "./caller.ts";
import type { Lifeline } from "./lifeline.ts";
import type { Pulse } from "./pulse.ts";

const PING_MS = 5_000;
const PAGE = 1_000;
/** Why it is lost where the pool does not know it. */
const UNLISTED = "deleted";
/** States from which no sandbox comes back. */
const ENDED: ReadonlySet<State> = new Set<State>(["releasing", "gone", "lost", "failed"]);

export class Box {
  readonly caller: Caller;
  readonly target: Target;
  readonly run: string | undefined;
  readonly lifeline: Lifeline;
  readonly pulse: Pulse;
  #inquiry: Promise<"here" | "away"> | undefined;

  constructor(caller: Caller, pulse: Pulse, lifeline: Lifeline, target: Target, run?: string) {
    this.caller = caller;
    this.pulse = pulse;
    this.lifeline = lifeline;
    this.target = target;
    this.run = run;
  }

  get id(): string {
    return this.target.sandbox;
  }

  /** Asks the sandbox, and where it does not answer the pool, whether it is still there; a loss goes to the
   * lifeline. All callers share one inquiry. Never rejects. */
  inquire(): Promise<"here" | "away"> {
    this.#inquiry ??= this.#inquire().finally(() => {
      this.#inquiry = undefined;
    });
    return this.#inquiry;
  }

  async #inquire(): Promise<"here" | "away"> {
    try {
      await this.caller.sandbox(this.target, "ping", {}, { timeoutMs: PING_MS, absentMs: 0 });
      return "here";
    } catch (error) {
      this.note(error);
      if (error instanceof UnreachableError) await this.#askPool();
      return "away";
    }
  }

  /** Lets the lifeline know where `error` says that the sandbox is not ours any more. */
  note(error: unknown): void {
    if (error instanceof LeaseLostError || error instanceof SandboxLostError) this.lifeline.fail(error);
  }

  async #askPool(): Promise<void> {
    try {
      let after: string | undefined;
      do {
        const page = await this.caller.pool(
          "list",
          { limit: PAGE, ...(this.run && { run: this.run }), ...(after && { after }) },
          { timeoutMs: PING_MS, absentMs: 0 },
        );
        const view = page.sandboxes.find((each) => each.sandbox === this.id);
        if (view !== undefined) {
          if (ENDED.has(view.state)) this.#lost(view.reason ?? view.state);
          return;
        }
        after = page.next;
      } while (after !== undefined);
      this.#lost(UNLISTED);
    } catch (error) {
      // The pool is not there or busy: nothing is known, and it is asked again at the next silence.
      if (!(error instanceof SandmeshError)) throw error;
    }
  }

  #lost(reason: string): void {
    const neverOurs = this.run === undefined && reason === UNLISTED;
    const how = neverOurs
      ? "is not there: it never was, or it has ended"
      : `is not there any more (${reason})`;
    this.lifeline.fail(new SandboxLostError(`sandbox ${this.id} ${how}`, { sandbox: this.id, reason }));
  }
}
