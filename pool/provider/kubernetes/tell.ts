// From changes of pods to what is told of them: once each, not of those that we remove, and of what may pass by itself
// only when it has lasted.
import type { ProviderEvent } from "../provider.ts";
import type { Change } from "./informer.ts";
import { judge, lossOfGone, type PodView, type Verdict } from "./observe.ts";
import type { KubernetesSettings } from "./settings.ts";

type Patience = Pick<KubernetesSettings, "unschedulableMs" | "imageRetryMs">;
type Trouble = Extract<Verdict, { type: "trouble" }>;

interface Told {
  uid: string;
  running: boolean;
  /** Lost or failed: the last word. */
  over: boolean;
  trouble: { about: Trouble; timer: ReturnType<typeof setTimeout> } | undefined;
}

export class Teller {
  readonly #patience: Patience;
  readonly #handlers = new Set<(event: ProviderEvent) => void>();
  readonly #told = new Map<string, Told>();
  /** Being removed by us. */
  readonly #expected = new Set<string>();

  constructor(patience: Patience) {
    this.#patience = patience;
  }

  listen(handle: (event: ProviderEvent) => void): () => void {
    const own = (event: ProviderEvent): void => handle(event);
    this.#handlers.add(own);
    return () => void this.#handlers.delete(own);
  }

  /** We remove it: its end is no loss. */
  expect(sandbox: string): void {
    this.#expected.add(sandbox);
  }

  /** What was to be removed is not there, or is another (`there`) of that name, whose end would be one. */
  forgive(sandbox: string, there: PodView | undefined): void {
    this.#expected.delete(sandbox);
    if (there === undefined) this.#forget(sandbox);
  }

  heed({ type, pod }: Change): void {
    const { name, uid } = pod.metadata;
    if (this.#expected.has(name)) {
      if (type === "gone") {
        this.#expected.delete(name);
        this.#forget(name);
      }
      return;
    }
    const told = this.#toldOf(name, uid);
    if (type === "gone") {
      const loss = lossOfGone(pod);
      if (!told.over) this.#tell({ type: "lost", sandbox: name, uid, ...loss });
      this.#forget(name);
      return;
    }
    if (!told.over) this.#say(pod, told, judge(pod));
  }

  #toldOf(name: string, uid: string): Told {
    const known = this.#told.get(name);
    if (known?.uid === uid) return known;
    this.#forget(name);
    const told: Told = { uid, running: false, over: false, trouble: undefined };
    this.#told.set(name, told);
    return told;
  }

  #say(pod: PodView, told: Told, verdict: Verdict): void {
    const { name: sandbox, uid } = pod.metadata;
    if (verdict.type !== "trouble") this.#calm(told);
    switch (verdict.type) {
      case "starting":
        return;
      case "running":
        if (told.running) return;
        told.running = true;
        this.#tell({ type: "running", sandbox, uid });
        return;
      case "lost":
        told.over = true;
        this.#tell({ type: "lost", sandbox, uid, reason: verdict.reason, message: verdict.message });
        return;
      case "trouble":
        this.#worry(sandbox, told, verdict);
        return;
    }
  }

  #worry(sandbox: string, told: Told, about: Trouble): void {
    const { code, reason, message } = about;
    if (about.patience === "none") {
      this.#calm(told);
      told.over = true;
      this.#tell({ type: "failed", sandbox, uid: told.uid, code, reason, message });
      return;
    }
    if (told.trouble?.about.patience === about.patience) {
      told.trouble.about = about;
      return;
    }
    this.#calm(told);
    const ms = about.patience === "image" ? this.#patience.imageRetryMs : this.#patience.unschedulableMs;
    const lasted = (): void => {
      const last = told.trouble?.about ?? about;
      this.#worry(sandbox, told, { ...last, patience: "none" });
    };
    told.trouble = { about, timer: setTimeout(lasted, ms) };
  }

  #calm(told: Told): void {
    clearTimeout(told.trouble?.timer);
    told.trouble = undefined;
  }

  #forget(name: string): void {
    const told = this.#told.get(name);
    if (told !== undefined) this.#calm(told);
    this.#told.delete(name);
  }

  #tell(event: ProviderEvent): void {
    for (const handle of this.#handlers) handle(event);
  }

  close(): void {
    this.#handlers.clear();
    for (const told of this.#told.values()) this.#calm(told);
    this.#told.clear();
  }
}
