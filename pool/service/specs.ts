// Specs, parsed and validated once: the thousands of acquires of a burst mostly carry the same one.
import { createHash } from "node:crypto";
import * as v from "valibot";
import {
  check,
  InvalidRequestError,
  type SandboxSpec,
  SandboxSpec as SandboxSpecSchema,
  toSandmeshError,
  UnsupportedError,
} from "../../broker/contract/index.ts";
import type { Core } from "./core.ts";

export interface KnownSpec {
  readonly spec: SandboxSpec;
  /** The same for the same content. */
  readonly digest: string;
  /** Fields that this version does not know: ignored, as all of the wire are, but told. */
  readonly unknown: readonly string[];
  /** The providers that can, while that is fresh. */
  asked: { able: Able; until: number } | undefined;
  asking: Promise<Able> | undefined;
}

/** Names, in the order of the settings. */
export type Able = readonly [string, ...string[]];

const MAX_KNOWN = 256;
/** Larger ones (big environments) are parsed each time; they do not stay in memory. */
const MAX_KEY_CHARACTERS = 64 * 1024;
const Wrapped = v.object({ spec: SandboxSpecSchema });

export class Specs {
  readonly #core: Core;
  readonly #known = new Map<string, KnownSpec>();

  constructor(core: Core) {
    this.#core = core;
  }

  /** Throws InvalidRequestError naming the field below `spec`. */
  parse(given: unknown): KnownSpec {
    const key = keyOf(given);
    const known = key === undefined ? undefined : this.#known.get(key);
    if (known !== undefined) return known;
    const { spec } = check(Wrapped, { spec: given });
    const digest = createHash("sha256").update(JSON.stringify(spec)).digest("base64url").slice(0, 22);
    const unknown = unknownFields(given, SandboxSpecSchema.entries).map((name) => `spec.${name}`);
    const fresh: KnownSpec = { spec, digest, unknown, asked: undefined, asking: undefined };
    if (key !== undefined) this.#remember(key, fresh);
    return fresh;
  }

  #remember(key: string, known: KnownSpec): void {
    this.#known.set(key, known);
    for (const oldest of this.#known.keys()) {
      if (this.#known.size <= MAX_KNOWN) break;
      this.#known.delete(oldest);
    }
  }

  /** The providers that can: at once where that is known, else when asked. */
  able(known: KnownSpec): Able | Promise<Able> {
    if (known.asked !== undefined && known.asked.until > this.#core.now()) return known.asked.able;
    known.asking ??= this.#ask(known).finally(() => {
      known.asking = undefined;
    });
    return known.asking;
  }

  /** Rejects with the error of the first provider where none can. */
  async #ask(known: KnownSpec): Promise<Able> {
    const { spec } = known;
    const asked = [...this.#core.providers].filter(([name]) => (spec.provider ?? name) === name);
    const answers = await Promise.allSettled(asked.map(([, provider]) => provider.validate(spec)));
    const [first, ...others] = asked.flatMap(([name], i) =>
      answers[i]?.status === "fulfilled" ? [name] : [],
    );
    if (first === undefined) {
      const refusal = answers.find((answer) => answer.status === "rejected");
      if (refusal !== undefined) throw toSandmeshError(refusal.reason);
      const field = "spec.provider";
      const has = [...this.#core.providers.keys()].join(", ");
      const message = `this pool has no provider ${JSON.stringify(spec.provider)}; it has ${has}`;
      throw new UnsupportedError(message, { field });
    }
    const able: Able = [first, ...others];
    known.asked = { able, until: this.#core.now() + this.#core.limits.validateCacheMs };
    return able;
  }
}

/** The keys of `given` that are none of `known`. */
function unknownFields(given: unknown, known: object): string[] {
  return typeof given !== "object" || given === null
    ? []
    : Object.keys(given).filter((name) => !Object.hasOwn(known, name));
}

function keyOf(given: unknown): string | undefined {
  if (typeof given !== "object" || given === null) {
    throw new InvalidRequestError("spec: must be a map", { field: "spec" });
  }
  const key = JSON.stringify(given);
  return key.length > MAX_KEY_CHARACTERS ? undefined : key;
}
