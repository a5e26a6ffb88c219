// The operator's and accounts' keys and JWTs: made once, kept in the server's state folder, used at each start.
import * as v from "valibot";
import { check, decode } from "../contract/index.ts";
import { createSeed, ROLES, type Role, type Signer, signerOf, signJwt } from "../credentials/index.ts";
import { KeyRing } from "./keyring.ts";
import { CONNECT_SUBJECT, DISCONNECT_SUBJECT, scopeOf } from "./permissions.ts";

/** The secrets file. Whoever has it owns the mesh. */
export const OperatorKeys = v.object({
  version: v.literal(1),
  operator: v.string(),
  system: v.string(),
  account: v.string(),
  roles: v.object({
    user: v.string(),
    operator: v.string(),
    observer: v.string(),
    pool: v.string(),
    bootstrap: v.string(),
    sandbox: v.string(),
  }),
  /** Public keys of revoked users, and when (seconds since the epoch): JWTs issued until then are refused. */
  revoked: v.record(v.string(), v.number()),
});
export type OperatorKeys = v.InferOutput<typeof OperatorKeys>;

export function createOperatorKeys(): OperatorKeys {
  const account = () => createSeed("account");
  return {
    version: 1,
    operator: createSeed("operator"),
    system: account(),
    account: account(),
    roles: {
      user: account(),
      operator: account(),
      observer: account(),
      pool: account(),
      bootstrap: account(),
      sandbox: account(),
    },
    revoked: {},
  };
}

/** Keys of before there were operators. */
const FormerKeys = v.object({ roles: v.looseObject({ operator: v.optional(v.never()) }) });

/** Throws InvalidRequestError naming the field that is damaged. Keys of before there were operators get one of theirs, and
 * `added` is true: it must be kept. */
export function parseOperatorKeys(text: string): { keys: OperatorKeys; added: boolean } {
  const read = decode(Buffer.from(text));
  const former = v.safeParse(FormerKeys, read);
  if (!former.success) return { keys: check(OperatorKeys, read), added: false };
  const roles = { ...former.output.roles, operator: createSeed("account") };
  return { keys: check(OperatorKeys, { ...(read as object), roles }), added: true };
}

/** What the server's configuration carries: all public. */
export interface OperatorJwts {
  operator: string;
  systemKey: string;
  system: string;
  accountKey: string;
  account: string;
}

const NO_LIMITS = { subs: -1, data: -1, payload: -1, imports: -1, exports: -1, wildcards: true, conn: -1 };
const JETSTREAM = { mem_storage: -1, disk_storage: -1, streams: -1, consumer: -1 };

/** Signs the JWTs anew, so that a newer table of permissions takes effect at the next start. */
export function signOperatorJwts(keys: OperatorKeys): OperatorJwts {
  const operator = signerOf(keys.operator, "operator");
  const system = signerOf(keys.system, "system");
  return {
    operator: signJwt(
      {
        subject: operator.publicKey,
        name: "sandmesh",
        nats: { type: "operator", system_account: system.publicKey },
      },
      operator,
    ),
    systemKey: system.publicKey,
    system: signSystem(system, operator),
    accountKey: signerOf(keys.account, "account").publicKey,
    account: signAccount(keys),
  };
}

function signSystem(system: Signer, operator: Signer): string {
  return signJwt(
    {
      subject: system.publicKey,
      name: "SYS",
      nats: {
        type: "account",
        limits: NO_LIMITS,
        // The third token is the importing account's own key, so that nobody can import another's advisories.
        exports: [
          {
            name: "account advisories",
            subject: "$SYS.ACCOUNT.*.>",
            type: "stream",
            account_token_position: 3,
          },
        ],
      },
    },
    operator,
  );
}

/** The one JWT that may change while the server runs: a reload refuses another operator's or system account's. */
export function signAccount(keys: OperatorKeys): string {
  const operator = signerOf(keys.operator, "operator");
  const system = signerOf(keys.system, "system");
  const account = signerOf(keys.account, "account");
  const advisory = (what: string, local: string) => ({
    name: what.toLowerCase(),
    subject: `$SYS.ACCOUNT.${account.publicKey}.${what}`,
    account: system.publicKey,
    local_subject: local,
    type: "stream",
  });
  const scope = (role: Role) => scopeOf(role, signerOf(keys.roles[role], `roles.${role}`).publicKey);
  return signJwt(
    {
      subject: account.publicKey,
      name: "SANDMESH",
      nats: {
        type: "account",
        limits: { ...NO_LIMITS, ...JETSTREAM, disallow_bearer: true },
        signing_keys: ROLES.map(scope),
        imports: [advisory("DISCONNECT", DISCONNECT_SUBJECT), advisory("CONNECT", CONNECT_SUBJECT)],
        revocations: keys.revoked,
      },
    },
    operator,
  );
}

/** The keys that mint. */
export function keyRingOf(keys: OperatorKeys): KeyRing {
  return new KeyRing({
    version: 1,
    account: signerOf(keys.account, "account").publicKey,
    seeds: keys.roles,
  });
}
