// What becomes of a virtual sandbox: decided by the seed and its name alone, so that a run can be repeated. Pure.
import * as v from "valibot";

const share = (what: string) =>
  v.optional(
    v.pipe(v.number(), v.minValue(0), v.maxValue(1), v.description(`Share of sandboxes: ${what}`)),
    0,
  );
const ms = (byDefault: number, what: string) =>
  v.optional(v.pipe(v.number(), v.minValue(0), v.description(`${what}, ms`)), byDefault);

export const FateSettings = v.object({
  seed: v.optional(v.pipe(v.number(), v.integer(), v.description("The same seed, the same fates")), 1),
  bootMedianMs: ms(0, "Median of the time from create to the daemon's start"),
  bootSpread: v.optional(
    v.pipe(v.number(), v.minValue(0), v.maxValue(4), v.description("Sigma of its log-normal distribution")),
    0,
  ),
  bootMaxMs: ms(600_000, "Longest boot"),
  createFails: share("the create is refused (ProviderError)"),
  createHangs: share("the create answers only when it is given up; the sandbox is made nevertheless"),
  neverReady: share("the daemon never speaks"),
  bootFails: share("the daemon exits before it is ready"),
  dies: share("the daemon dies some time after its start"),
  freezes: share("the daemon hears and says nothing any more some time after its start"),
  troubleMeanMs: ms(10_000, "Mean time until one dies or freezes"),
  removeFails: share("the first remove is refused (ProviderError)"),
});
export type FateSettings = v.InferOutput<typeof FateSettings>;

export type Trouble = "none" | "never_ready" | "boot_fails" | "dies" | "freezes";

export interface Fate {
  create: "ok" | "fails" | "hangs";
  bootMs: number;
  trouble: Trouble;
  /** After the daemon's start; for `dies` and `freezes`. */
  troubleMs: number;
  removeFails: boolean;
}

export function fateOf(sandbox: string, settings: FateSettings): Fate {
  const random = generator(hash(`${settings.seed}/${sandbox}`));
  const { createFails, createHangs } = settings;
  const create = pick(random(), [
    ["fails", createFails],
    ["hangs", createHangs],
  ] as const);
  const trouble = pick(random(), [
    ["never_ready", settings.neverReady],
    ["boot_fails", settings.bootFails],
    ["dies", settings.dies],
    ["freezes", settings.freezes],
  ] as const);
  return {
    create: create ?? "ok",
    bootMs: Math.min(settings.bootMaxMs, logNormal(settings.bootMedianMs, settings.bootSpread, random)),
    trouble: trouble ?? "none",
    troubleMs: -Math.log(1 - random()) * settings.troubleMeanMs,
    removeFails: random() < settings.removeFails,
  };
}

/** The first whose share `at` falls into. */
function pick<T>(at: number, shares: readonly (readonly [T, number])[]): T | undefined {
  let below = 0;
  for (const [what, part] of shares) {
    below += part;
    if (at < below) return what;
  }
  return undefined;
}

function logNormal(median: number, sigma: number, random: () => number): number {
  const normal = Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  return median * Math.exp(sigma * normal);
}

/** FNV-1a. */
export function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193);
  return value >>> 0;
}

/** Mulberry32: 0 to 1, the same for the same seed. */
export function generator(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}
