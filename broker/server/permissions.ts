// Who may do what: one table, which the server enforces through scoped signing keys (one a role).
//
// The templates are filled by the server from the tags of the user's JWT. There is no `allow_responses` and no
// `_INBOX`: with the first, a user could name another tenant's request subject as reply and have a sandbox send it.
import { ENROL_WILDCARD, MAX_MESSAGE_BYTES, POOL_REPLY_WILDCARD, POOL_WILDCARD } from "../contract/index.ts";
import type { Role } from "../credentials/index.ts";

export interface Permissions {
  /** Subjects it may publish to; empty: none. */
  publish: readonly string[];
  /** Of these, those that it may not publish to. */
  notPublish?: readonly string[];
  /** Subjects it may subscribe; empty: none. */
  subscribe: readonly string[];
  limits: {
    /** Subscriptions at once on one connection. The SDKs need 46 at most (sdk/typescript/wire/event-hub.ts). */
    subscriptions: number;
    /** Bytes of a message with its headers. */
    payload: number;
  };
}

const T = "{{tag(tenant)}}";
const U = "{{tag(user)}}";
const S = "{{tag(sandbox)}}";
const KiB = 1024;

/** Where the disconnect and connect advisories of the account arrive, by an import from the system account. */
export const DISCONNECT_SUBJECT = "adv.v1.disconnect";
export const CONNECT_SUBJECT = "adv.v1.connect";
/** Asked here, each server of a cluster tells which connections it has; of the asker's own account only. */
export const CONNECTIONS_SUBJECT = "$SYS.REQ.ACCOUNT.PING.CONNZ";
/** Answers of JetStream, and of the servers, to the pool. */
const POOL_INBOX = "inb.v1.pool.>";
/** What the pool's streams hold: `rec.v1.<whatever the pool makes of it>`. */
const RECORDS_WILDCARD = "rec.v1.>";
/** What a pool that takes the records over writes first: the one before it hears that. */
const FENCES_WILDCARD = "rec.v1.*._fence";

/** Nobody listens there. The pool may publish to it in those accounts in which users are denied `drain`: so it learns whether
 * the server that it is connected to keeps that for operators, or has an account's JWT of before. */
export const GUARD_SUBJECT = "chk.v1.operator";

/** What users and operators hear. */
const HEARD = [`rep.v1.${T}.*.${U}.>`, `evt.v1.${T}.>`];

const PERMISSIONS: Record<Role, Permissions> = {
  user: {
    publish: [`sbx.v1.${T}.>`, `pool.v1.${T}.>`],
    // It ends other tenants' sandboxes. The pool cannot tell who publishes: only the server can.
    notPublish: [`pool.v1.${T}.drain`],
    subscribe: HEARD,
    limits: { subscriptions: 64, payload: MAX_MESSAGE_BYTES },
  },
  operator: {
    publish: [`sbx.v1.${T}.>`, `pool.v1.${T}.>`],
    subscribe: HEARD,
    limits: { subscriptions: 64, payload: MAX_MESSAGE_BYTES },
  },
  observer: {
    publish: [],
    subscribe: [`evt.v1.${T}.>`],
    limits: { subscriptions: 64, payload: 4 * KiB },
  },
  pool: {
    publish: [
      "rep.v1.*.pool.>",
      "ctl.v1.>",
      "evt.v1.*.pool.>",
      "evt.v1.*.run.>",
      RECORDS_WILDCARD,
      "$JS.API.>",
      CONNECTIONS_SUBJECT,
      // Before it ends one: does its daemon answer, and on which connection?
      "sbx.v1.*.*.ping",
      GUARD_SUBJECT,
    ],
    subscribe: [
      POOL_WILDCARD,
      ENROL_WILDCARD,
      POOL_REPLY_WILDCARD,
      "evt.v1.*.sbx.>",
      "adv.v1.*",
      POOL_INBOX,
      FENCES_WILDCARD,
    ],
    limits: { subscriptions: 1024, payload: MAX_MESSAGE_BYTES },
  },
  bootstrap: {
    publish: [`enr.v1.${T}.${S}`],
    subscribe: [`rep.v1.${T}.pool.${S}.>`],
    limits: { subscriptions: 2, payload: 16 * KiB },
  },
  sandbox: {
    publish: [`rep.v1.${T}.${S}.>`, `evt.v1.${T}.sbx.${S}.>`],
    subscribe: [`sbx.v1.${T}.${S}.*`, `ctl.v1.${T}.${S}.*`],
    limits: { subscriptions: 4, payload: MAX_MESSAGE_BYTES },
  },
};

/** An empty list would mean "everything" to NATS. */
function rule(subjects: readonly string[], but: readonly string[] = []) {
  if (subjects.length === 0) return { deny: [">"] };
  return { allow: subjects, ...(but.length === 0 ? {} : { deny: but }) };
}

/** A role's scope, as it stands in an account's JWT beside the role's signing key. */
export function scopeOf(role: Role, signingKey: string) {
  const { publish, notPublish, subscribe, limits } = PERMISSIONS[role];
  return {
    kind: "user_scope",
    key: signingKey,
    role,
    template: {
      pub: rule(publish, notPublish),
      sub: rule(subscribe),
      subs: limits.subscriptions,
      data: -1,
      payload: limits.payload,
      allowed_connection_types: ["STANDARD"],
    },
  };
}
