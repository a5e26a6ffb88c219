// Subjects: built and taken apart here and nowhere else. Who may publish and subscribe to which stands in
// broker/server/permissions.ts, which the server enforces.

import { InvalidRequestError } from "./errors.ts";
import { ID_PATTERN } from "./ids.ts";

/** The user part of answers to the pool's own requests. */
export const POOL_USER = "pool";
/** The "sandbox" part of answers that the pool gives. */
export const POOL_RESPONDER = "pool";

function id(field: string, value: string): string {
  if (!ID_PATTERN.test(value)) {
    throw new InvalidRequestError(
      `${field} ${JSON.stringify(value)} is not a valid id ([a-z0-9][a-z0-9-]{0,62})`,
      {
        field,
      },
    );
  }
  return value;
}

const VERB_PATTERN = /^[a-z][a-z_]{0,31}$/;

function verb(value: string): string {
  if (!VERB_PATTERN.test(value))
    throw new InvalidRequestError(`verb ${JSON.stringify(value)} is not valid`, { field: "verb" });
  return value;
}

/** A request to a sandbox: published by the tenant's users, received by that sandbox's daemon. */
export const sandboxSubject = (tenant: string, sandbox: string, what: string): string =>
  `sbx.v1.${id("tenant", tenant)}.${id("sandbox", sandbox)}.${verb(what)}`;

/** All requests to one sandbox: the daemon's first subscription. */
export const sandboxWildcard = (tenant: string, sandbox: string): string =>
  `sbx.v1.${id("tenant", tenant)}.${id("sandbox", sandbox)}.*`;

/** A word from the pool to a daemon. */
export const controlSubject = (tenant: string, sandbox: string, what: string): string =>
  `ctl.v1.${id("tenant", tenant)}.${id("sandbox", sandbox)}.${verb(what)}`;

/** All the pool's words to one daemon: its second and last subscription. */
export const controlWildcard = (tenant: string, sandbox: string): string =>
  `ctl.v1.${id("tenant", tenant)}.${id("sandbox", sandbox)}.*`;

/** A request to the pool. */
export const poolSubject = (tenant: string, what: string): string =>
  `pool.v1.${id("tenant", tenant)}.${verb(what)}`;
export const POOL_WILDCARD = "pool.v1.*.*";

/** A booting daemon's one enrolment. */
export const enrolSubject = (tenant: string, sandbox: string): string =>
  `enr.v1.${id("tenant", tenant)}.${id("sandbox", sandbox)}`;
export const ENROL_WILDCARD = "enr.v1.*.*";

/** Where an answer goes: from `responder` (a sandbox, or "pool") to `user`. `token` is the caller's own. */
export const replySubject = (tenant: string, responder: string, user: string, token: string): string =>
  `${replyPrefix(tenant, responder, user)}.${token}`;

/** The inbox prefix with which a client (the nats CLI, say) talks to one responder. */
export const replyPrefix = (tenant: string, responder: string, user: string): string =>
  `rep.v1.${id("tenant", tenant)}.${id("responder", responder)}.${id("user", user)}`;

/** All answers to one user: the one subscription of a client. */
export const replyWildcard = (tenant: string, user: string): string =>
  `rep.v1.${id("tenant", tenant)}.*.${id("user", user)}.>`;

/** All answers to the pool, from any tenant's sandbox. */
export const POOL_REPLY_WILDCARD = `rep.v1.*.*.${POOL_USER}.>`;

/** What happened: `pool` events, by run, by sandbox. */
export const poolEventSubject = (tenant: string, what: string): string =>
  `evt.v1.${id("tenant", tenant)}.pool.${verb(what)}`;
export const runEventSubject = (tenant: string, run: string, what: string): string =>
  `evt.v1.${id("tenant", tenant)}.run.${id("run", run)}.${verb(what)}`;
/** Events of runs, where `run`, `what` or both are `*`. */
export const runEventWildcard = (tenant: string, run: string, what: string): string =>
  `evt.v1.${id("tenant", tenant)}.run.${run === "*" ? run : id("run", run)}.${what === "*" ? what : verb(what)}`;
export const sandboxEventSubject = (tenant: string, sandbox: string, what: string): string =>
  `evt.v1.${id("tenant", tenant)}.sbx.${id("sandbox", sandbox)}.${verb(what)}`;
/** Each sandbox's word that it is ready, of all tenants: the pool's subscription. */
export const READY_WILDCARD = "evt.v1.*.sbx.*.ready";
export const eventWildcard = (tenant: string): string => `evt.v1.${id("tenant", tenant)}.>`;

export type ParsedSubject =
  | { kind: "sandbox" | "control"; tenant: string; sandbox: string; verb: string }
  | { kind: "pool"; tenant: string; verb: string }
  | { kind: "enrol"; tenant: string; sandbox: string }
  | { kind: "reply"; tenant: string; responder: string; user: string; token: string }
  | { kind: "event"; tenant: string; scope: "pool"; what: string }
  | { kind: "event"; tenant: string; scope: "run" | "sandbox"; of: string; what: string };

/** Takes a subject apart; undefined where it is none of ours. Never throws. */
export function parseSubject(subject: string): ParsedSubject | undefined {
  const parts = subject.split(".");
  const [root, version, tenant, a, b, c] = parts;
  if (version !== "v1" || tenant === undefined || !ID_PATTERN.test(tenant)) return undefined;
  const isId = (s: string | undefined): s is string => s !== undefined && ID_PATTERN.test(s);
  const isVerb = (s: string | undefined): s is string => s !== undefined && VERB_PATTERN.test(s);
  const n = parts.length;
  switch (root) {
    case "sbx":
    case "ctl":
      return n === 5 && isId(a) && isVerb(b)
        ? { kind: root === "sbx" ? "sandbox" : "control", tenant, sandbox: a, verb: b }
        : undefined;
    case "pool":
      return n === 4 && isVerb(a) ? { kind: "pool", tenant, verb: a } : undefined;
    case "enr":
      return n === 4 && isId(a) ? { kind: "enrol", tenant, sandbox: a } : undefined;
    case "rep": {
      const token = parts.slice(5).join(".");
      // Visible ASCII without wildcards: what may be published to.
      const plain = /^[!-)+-=?-~]+$/.test(token) && !token.split(".").includes("");
      return isId(a) && isId(b) && plain
        ? { kind: "reply", tenant, responder: a, user: b, token }
        : undefined;
    }
    case "evt":
      if (n === 5 && a === "pool" && isVerb(b)) return { kind: "event", tenant, scope: "pool", what: b };
      if (n === 6 && (a === "run" || a === "sbx") && isId(b) && isVerb(c)) {
        return { kind: "event", tenant, scope: a === "sbx" ? "sandbox" : "run", of: b, what: c };
      }
      return undefined;
    default:
      return undefined;
  }
}

/** As parseSubject has them. */
const USER_AND_TOKEN = /^[a-z0-9][a-z0-9-]{0,62}(?:\.[!-)+-\-/-=?-~]+)+$/;

/** Whether `reply` is an answer subject of `tenant` that `responder` may publish to. The server refuses a foreign
 * one too; checking here turns a silent refusal into a logged one, and keeps a bug from becoming a hole. */
export function isReplyFor(reply: string | undefined, tenant: string, responder: string): reply is string {
  const prefix = `rep.v1.${tenant}.${responder}.`;
  return reply?.startsWith(prefix) === true && USER_AND_TOKEN.test(reply.slice(prefix.length));
}
