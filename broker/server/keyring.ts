// Mints credentials: holds the role signing keys, and nothing above them. The pool's process loads one from a bundle
// file; the operator's and account's keys stay elsewhere.
import * as v from "valibot";
import {
  check,
  decode,
  Id,
  InvalidRequestError,
  PermissionDeniedError,
  SANDBOX_PREFIX,
  UserId,
} from "../contract/index.ts";
import {
  type Credentials,
  createUserKey,
  decodePublicKey,
  ROLES,
  type Role,
  type Signer,
  signerOf,
  signJwt,
  tagsOf,
} from "../credentials/index.ts";

const Seed = v.pipe(v.string(), v.startsWith("SA", "must be an account's seed"));

/** The file that lets a process mint: which roles it holds is which roles it can mint. */
export const KeyBundle = v.object({
  version: v.literal(1),
  /** The account's public key: credentials are of this account. */
  account: v.string(),
  seeds: v.object({
    user: v.optional(Seed),
    operator: v.optional(Seed),
    observer: v.optional(Seed),
    pool: v.optional(Seed),
    bootstrap: v.optional(Seed),
    sandbox: v.optional(Seed),
  }),
});
export type KeyBundle = v.InferOutput<typeof KeyBundle>;

interface Subject {
  tenant?: string;
  user?: string;
  sandbox?: string;
}

/** Milliseconds a credential lives; left out: for ever (until its account's key is replaced, or it is revoked). */
type Ttl = { ttlMs?: number };

const UserSubject = v.object({ tenant: Id, user: UserId });
const SandboxSubject = v.object({ tenant: Id, sandbox: Id });
const Lifetime = v.object({ ttlMs: v.optional(v.pipe(v.number(), v.integer(), v.minValue(1))) });

/** Mints credentials offline; each costs about 0.1 ms. All throw InvalidRequestError for a bad id, and
 * PermissionDeniedError for a role whose key is not in the ring. */
export class KeyRing {
  readonly account: string;
  readonly #bundle: KeyBundle;
  readonly #signers = new Map<Role, Signer>();

  constructor(bundle: KeyBundle) {
    this.#bundle = bundle;
    this.account = bundle.account;
    decodePublicKey(bundle.account, "account");
    for (const role of ROLES) {
      const seed = bundle.seeds[role];
      if (seed !== undefined) this.#signers.set(role, signerOf(seed, `seeds.${role}`));
    }
  }

  /** Reads a bundle file's text; throws InvalidRequestError naming the field. */
  static parse(text: string): KeyRing {
    return new KeyRing(check(KeyBundle, decode(Buffer.from(text))));
  }

  /** The text of a bundle file with the keys of `roles` only: secret, keep it readable by its owner alone. The pool
   * needs `bootstrap` and `sandbox`. */
  format(roles: readonly Role[] = ["bootstrap", "sandbox"]): string {
    const seeds = Object.fromEntries(roles.map((role) => [role, this.#bundle.seeds[role]]));
    return `${JSON.stringify({ version: 1, account: this.account, seeds }, null, 2)}\n`;
  }

  /** A trainer, or a person: may use the pool and all sandboxes of its tenant. */
  mintUser({ tenant, user, ttlMs }: { tenant: string; user: string } & Ttl): Credentials {
    return this.#mint("user", check(UserSubject, { tenant, user }), ttlMs);
  }

  /** Who runs the pool: may do what a user of its tenant may, and `drain`, which ends the sandboxes of all tenants. */
  mintOperator({ tenant, user, ttlMs }: { tenant: string; user: string } & Ttl): Credentials {
    return this.#mint("operator", check(UserSubject, { tenant, user }), ttlMs);
  }

  /** A dashboard: hears the tenant's events, and can do nothing. */
  mintObserver({ tenant, user = "observer", ttlMs }: { tenant: string; user?: string } & Ttl): Credentials {
    return this.#mint("observer", check(UserSubject, { tenant, user }), ttlMs);
  }

  /** The pool itself. */
  mintPool({ ttlMs }: Ttl = {}): Credentials {
    return this.#mint("pool", {}, ttlMs);
  }

  /** For one enrolment of one sandbox. */
  mintBootstrap({ tenant, sandbox, ttlMs }: { tenant: string; sandbox: string; ttlMs: number }): Credentials {
    return this.#mint("bootstrap", this.#sandboxSubject(tenant, sandbox), ttlMs);
  }

  /** A daemon's JWT for the key that it made itself. */
  mintSandbox(options: { tenant: string; sandbox: string; publicKey: string; ttlMs: number }): string {
    const { tenant, sandbox, publicKey, ttlMs } = options;
    if (decodePublicKey(publicKey).type !== "user") {
      throw new InvalidRequestError("public_key is not a user's", { field: "public_key" });
    }
    return this.#sign("sandbox", this.#sandboxSubject(tenant, sandbox), publicKey, ttlMs);
  }

  /** A sandbox's name never looks like a user's: both stand at the same place of an answer subject. */
  #sandboxSubject(tenant: string, sandbox: string): Subject {
    const subject = check(SandboxSubject, { tenant, sandbox });
    if (!sandbox.startsWith(SANDBOX_PREFIX)) {
      throw new InvalidRequestError(`sandbox must start with ${SANDBOX_PREFIX}`, { field: "sandbox" });
    }
    return subject;
  }

  #mint(role: Role, subject: Subject, ttlMs: number | undefined): Credentials {
    const { publicKey, seed } = createUserKey();
    return { jwt: this.#sign(role, subject, publicKey, ttlMs), seed };
  }

  #sign(role: Role, subject: Subject, publicKey: string, ttlMs: number | undefined): string {
    const signer = this.#signers.get(role);
    if (signer === undefined) {
      throw new PermissionDeniedError(`this key ring has no key to mint the role ${role} with`);
    }
    check(Lifetime, { ttlMs });
    const { tenant, user, sandbox } = subject;
    return signJwt(
      {
        subject: publicKey,
        name: [role, tenant, user, sandbox].filter((part) => part !== undefined).join("."),
        ...(ttlMs === undefined ? {} : { expiresAtMs: Date.now() + ttlMs }),
        nats: {
          type: "user",
          tags: tagsOf({ role, tenant, user, sandbox }),
          issuer_account: this.account,
        },
      },
      signer,
    );
  }
}
