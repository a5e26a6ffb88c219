// One sandbox as the SDK's inside sees it: how to reach it, and how to find out whether it is still there.
import {
  LeaseLostError,
  NotFoundError,
  SandboxLostError,
  SandmeshError,
  UnreachableError,
} from "../../../broker/contract/index.ts";
import type { Caller, CallOptions, CallVerb, SandboxAnswer, SandboxRequest, Target } from "./caller.ts";
import type { Lifeline } from "./lifeline.ts";
import { isLive } from "./listing.ts";
import type { Losses } from "./losses.ts";
import { saying } from "./lost.ts";
import { canceledBy, stopWith, unlessAborted } from "./pause.ts";
import type { Pulse } from "./pulse.ts";
import { Silence } from "./silence.ts";

const PING_MS = 5_000;
/** The pool did not tell of which run it is: asked again after this. */
const LISTEN_AGAIN_MS = 5_000;

export class Box {
  readonly caller: Caller;
  readonly target: Target;
  readonly run: string | undefined;
  readonly lifeline: Lifeline;
  readonly pulse: Pulse;
  readonly #losses: Losses | undefined;
  #inquiry: Promise<"here" | "away"> | undefined;
  /** How many wait for it now. */
  #waiting = 0;
  /** Of the listening that goes on, in place of which another one may have begun. */
  #listening: object | undefined;
  #unhear: () => void = () => undefined;

  /** `run`: where its holder tells the lifeline of its loss. `losses`: by which one is heard of who has but its id. */
  constructor(
    caller: Caller,
    pulse: Pulse,
    lifeline: Lifeline,
    target: Target,
    { run, losses }: { run?: string; losses?: Losses } = {},
  ) {
    this.caller = caller;
    this.pulse = pulse;
    this.lifeline = lifeline;
    this.target = target;
    this.run = run;
    this.#losses = losses;
  }

  get id(): string {
    return this.target.sandbox;
  }

  /** One request with one answer. A loss that it tells of goes to the lifeline; one that is known, or becomes known while
   * it waits, is thrown at once. */
  async call<V extends CallVerb>(
    verb: V,
    request: SandboxRequest<V>,
    options: CallOptions = {},
  ): Promise<SandboxAnswer<V>> {
    return await this.whileHere(options.signal, async (signal) => {
      const silence = new Silence(this);
      this.pulse.add(silence);
      try {
        return await this.caller.sandbox(this.target, verb, request, {
          ...options,
          signal,
          // It may only be coming back; the pool knows whether it is gone.
          onAbsent: () => void this.inquire(),
        });
      } catch (error) {
        this.note(error);
        if (error instanceof UnreachableError) await unlessAborted(this.inquire(), signal);
        throw error;
      } finally {
        silence.end();
        this.pulse.delete(silence);
      }
    });
  }

  /** Runs `work`, which must heed the signal that it gets. Throws CanceledError where the caller's has aborted, and why the
   * sandbox is lost where it is, or becomes so meanwhile. */
  async whileHere<T>(signal: AbortSignal | undefined, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const { lifeline } = this;
    lifeline.throwIfLost();
    const either = stopWith(signal);
    const heedLoss = lifeline.onLost(either.stop);
    try {
      return await work(either.signal);
    } catch (error) {
      if (signal?.aborted === true) throw canceledBy(signal, { sandbox: this.id });
      lifeline.throwIfLost();
      throw error;
    } finally {
      heedLoss();
      either.end();
    }
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
      if (error instanceof UnreachableError) await this.#askPool(() => this.#unlisted());
      return "away";
    }
  }

  /** Lets the lifeline know where `error` says that the sandbox is not ours any more. */
  note(error: unknown): void {
    if (!(error instanceof LeaseLostError || error instanceof SandboxLostError)) return;
    // What it says of the command that was asked about is not so of the others.
    this.lifeline.fail(error.started === undefined ? error : saying(error, undefined));
  }

  waitingBegins(): void {
    this.#waiting++;
  }

  waitingEnds(): void {
    if (--this.#waiting > 0) return;
    this.#unhear();
    this.#unhear = () => undefined;
    this.#listening = undefined;
  }

  /** Calls `tell`, which must not throw, once, at the loss (not where it is known already), which is listened for until then.
   * Returns what takes it back. */
  onLost(tell: (error: SandmeshError) => void): () => void {
    if (this.lifeline.error !== undefined) return () => undefined;
    this.waitingBegins();
    this.listen();
    let waits = true;
    const end = () => {
      if (waits) this.waitingEnds();
      waits = false;
    };
    const unhear = this.lifeline.onLost((error) => {
      end();
      tell(error);
    });
    return () => {
      unhear();
      end();
    };
  }

  /** A handle by id does not know its run, whose holder hears of losses at once: who waits longer asks for it, and hears
   * of them too. */
  listen(): void {
    if (this.#losses === undefined || this.#listening !== undefined) return;
    const listening = {};
    this.#listening = listening;
    void this.#listen(this.#losses, () => this.#listening === listening && this.caller.closed === undefined);
  }

  async #listen(losses: Losses, goesOn: () => boolean): Promise<void> {
    const askedAt = performance.now();
    // Where the pool has none such it may have forgotten it: the sandbox itself is asked first.
    const run = await this.#askPool(() => void this.inquire());
    if (!goesOn() || this.lifeline.error !== undefined) return;
    if (run === undefined) {
      setTimeout(() => goesOn() && void this.#listen(losses, goesOn), LISTEN_AGAIN_MS).unref();
      return;
    }
    try {
      const { unsure, stop } = losses.follow(run, this.id, askedAt, (reason) => this.#lost(reason));
      if (!goesOn()) return stop();
      this.#unhear = stop;
      if (unsure) await this.#askPool(() => undefined);
    } catch (error) {
      if (!(error instanceof SandmeshError)) throw error; // the connection is being closed
    }
  }

  /** Resolves to its run, where it lives; a loss goes to the lifeline. `unlisted` is called where the pool has none such. */
  async #askPool(unlisted: () => void): Promise<string | undefined> {
    const { id: sandbox } = this;
    try {
      const { sandboxes, next } = await this.caller.pool(
        "list",
        { sandbox },
        { timeoutMs: PING_MS, absentMs: 0 },
      );
      const view = sandboxes.find((each) => each.sandbox === sandbox);
      if (view !== undefined && isLive(view)) return view.run;
      // An older pool, which lists them all.
      if (view === undefined && next !== undefined) return undefined;
      if (view === undefined) unlisted();
      else this.#lost(view.reason ?? view.state);
    } catch (error) {
      // The pool is not there or busy: nothing is known, and it is asked again at the next silence.
      if (!(error instanceof SandmeshError)) throw error;
    }
    return undefined;
  }

  #unlisted(): void {
    const { id: sandbox } = this;
    if (this.run !== undefined) this.#lost("deleted");
    else this.lifeline.fail(new NotFoundError(`there is no sandbox ${sandbox}`, { sandbox }));
  }

  #lost(reason: string): void {
    const { id: sandbox } = this;
    const message = `sandbox ${sandbox} is not there any more (${reason})`;
    this.lifeline.fail(new SandboxLostError(message, { sandbox, reason }));
  }
}
