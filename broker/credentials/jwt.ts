// NATS JWTs, version 2: a claims map, signed with an nkey.
import { randomBytes } from "node:crypto";
import * as v from "valibot";
import { check, InvalidRequestError } from "../contract/core.ts";
import { base32, type Signer, verifySignature } from "./nkeys.ts";

/** Claims that all kinds have. Times are in seconds since the epoch. */
export const Claims = v.looseObject({
  jti: v.optional(v.string()),
  iat: v.optional(v.number()),
  exp: v.optional(v.number()),
  iss: v.string(),
  sub: v.string(),
  name: v.optional(v.string()),
  nats: v.looseObject({
    type: v.picklist(["operator", "account", "user"]),
    version: v.optional(v.number()),
    tags: v.optional(v.array(v.string())),
    issuer_account: v.optional(v.string()),
  }),
});
export type Claims = v.InferOutput<typeof Claims>;

const Header = v.looseObject({ alg: v.literal("ed25519-nkey") });
const HEADER = Buffer.from('{"typ":"JWT","alg":"ed25519-nkey"}').toString("base64url");

/** A JWT, far above what any role needs; a larger one is refused before it costs anything. */
const MAX_JWT_CHARACTERS = 64 * 1024;

export interface Unsigned {
  subject: string;
  name: string;
  /** Milliseconds since the epoch; left out: for ever. Rounded up to the second, which is what NATS knows. */
  expiresAtMs?: number;
  nats: Record<string, unknown> & { type: "operator" | "account" | "user" };
}

/** Signs claims; `issuer` becomes their `iss`. */
export function signJwt(unsigned: Unsigned, issuer: Signer, now: number = Date.now()): string {
  const claims = {
    jti: base32(randomBytes(16)),
    iat: Math.floor(now / 1000),
    iss: issuer.publicKey,
    name: unsigned.name,
    sub: unsigned.subject,
    ...(unsigned.expiresAtMs === undefined ? {} : { exp: Math.ceil(unsigned.expiresAtMs / 1000) }),
    nats: { ...unsigned.nats, version: 2 },
  };
  const body = `${HEADER}.${Buffer.from(JSON.stringify(claims)).toString("base64url")}`;
  return `${body}.${issuer.sign(Buffer.from(body)).toString("base64url")}`;
}

function part(text: string, what: string): unknown {
  if (!/^[A-Za-z0-9_-]+$/.test(text)) throw new Error(`its ${what} is not base64url`);
  return JSON.parse(Buffer.from(text, "base64url").toString("utf8"));
}

/** The claims of a JWT whose signature is by its own issuer. Whether that issuer may be trusted is the server's to
 * know. Throws InvalidRequestError with field "jwt". */
export function decodeJwt(jwt: string): Claims {
  const parts = typeof jwt === "string" && jwt.length <= MAX_JWT_CHARACTERS ? jwt.split(".") : [];
  const [header, body, signature] = parts;
  if (parts.length !== 3 || header === undefined || body === undefined || signature === undefined) {
    throw new InvalidRequestError("jwt is not a JWT", { field: "jwt" });
  }
  try {
    check(Header, part(header, "header"));
    const claims = check(Claims, part(body, "body"));
    const signed = Buffer.from(`${header}.${body}`);
    if (!verifySignature(claims.iss, signed, Buffer.from(signature, "base64url"))) {
      throw new Error("its signature does not match");
    }
    return claims;
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new InvalidRequestError(`jwt is not a NATS JWT: ${why}`, { field: "jwt", cause });
  }
}
