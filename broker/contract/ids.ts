// Identifiers: what may stand in a subject, and how new ids are made.
import { randomFillSync } from "node:crypto";
import * as v from "valibot";

/** Tenants, users, sandboxes, runs and sessions: 1 to 63 of `[a-z0-9-]`, first of `[a-z0-9]`. Anything else is
 * refused before it reaches a subject, where `.`, `*`, `>` and white space have a meaning of their own. */
export const ID_PATTERN = /^[a-z0-9][a-z0-9-]{0,62}$/;

export const Id = v.pipe(
  v.string("must be a string"),
  v.regex(ID_PATTERN, "must be 1 to 63 characters of a-z, 0-9 and '-', and start with a letter or digit"),
);

/** A UUIDv7 (RFC 9562): ordered in time, chosen by the caller, so that a retry attaches to the first try. */
export const UUID_V7_PATTERN = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

export const CommandId = v.pipe(
  v.string("must be a string"),
  v.regex(UUID_V7_PATTERN, "must be a lower-case UUIDv7, such as 01920c6a-7b1e-7c3d-8e4f-5a6b7c8d9e0f"),
);

/** The last identifier made, so that ids of one millisecond stay in order within one process. */
const last = { ms: 0, counter: 0 };
const random = new Uint8Array(8 * 1024);
let randomUsed = random.length;

/** A new UUIDv7. Within one process ids only ever grow, also when the clock steps back (RFC 9562 §6.2, method 1:
 * the 12 bits after the version count up within one millisecond). `now` is in milliseconds since the epoch. */
export function newUuidV7(now: number = Date.now()): string {
  if (now > last.ms) {
    last.ms = now;
    last.counter = 0;
  } else if (++last.counter > 0xfff) {
    last.ms += 1;
    last.counter = 0;
  }
  if (randomUsed + 8 > random.length) {
    randomFillSync(random);
    randomUsed = 0;
  }
  const tail = Buffer.from(random.buffer, random.byteOffset + randomUsed, 8);
  randomUsed += 8;
  const time = last.ms.toString(16).padStart(12, "0");
  const count = last.counter.toString(16).padStart(3, "0");
  const hex = tail.toString("hex");
  const variant = ((Number.parseInt(hex.charAt(0), 16) & 0x3) | 0x8).toString(16);
  return `${time.slice(0, 8)}-${time.slice(8)}-7${count}-${variant}${hex.slice(1, 4)}-${hex.slice(4)}`;
}

/** Milliseconds since the epoch at which a UUIDv7 was made. */
export function uuidV7Time(id: string): number {
  return Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16);
}

const CROCKFORD = "0123456789abcdefghjkmnpqrstvwxyz";

/** `length` random characters of Crockford's base 32, for names a person reads aloud; 5 bits each. */
export function randomName(length: number): string {
  const bytes = randomFillSync(new Uint8Array(length));
  let name = "";
  for (const byte of bytes) name += CROCKFORD.charAt(byte & 31);
  return name;
}

/** Sandbox ids start with this, users' names must not: both stand at the same place of an answer subject. */
export const SANDBOX_PREFIX = "sb-";

/** A new sandbox id: 65 random bits, never used again. */
export function newSandboxId(): string {
  return SANDBOX_PREFIX + randomName(13);
}

/** Names that a user, a sandbox or a run may not have, since the wire uses them itself. */
const RESERVED_IDS: ReadonlySet<string> = new Set(["pool"]);

/** A user's name: an id that is not reserved and does not look like a sandbox's. */
export const UserId = v.pipe(
  Id,
  v.check((id) => !RESERVED_IDS.has(id) && !id.startsWith(SANDBOX_PREFIX), "is reserved"),
);
