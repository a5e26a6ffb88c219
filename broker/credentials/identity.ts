// Who a credential is: what the minter wrote into the JWT's tags, which the server's permission templates read too.
import { InvalidRequestError } from "../contract/core.ts";
import { decodeJwt } from "./jwt.ts";

export const ROLES = ["user", "operator", "observer", "pool", "bootstrap", "sandbox"] as const;
/** What a credential may do; broker/server/permissions.ts says it in full. */
export type Role = (typeof ROLES)[number];

export interface Identity {
  role: Role;
  /** Of the pool: undefined, since it serves all. */
  tenant: string | undefined;
  /** Of users, operators and observers. */
  user: string | undefined;
  /** Of bootstraps and sandboxes. */
  sandbox: string | undefined;
  /** The public nkey. */
  publicKey: string;
  /** Milliseconds since the epoch; undefined: never. */
  expiresAtMs: number | undefined;
}

/** Tags as NATS keeps them: `key:value`, lower-case. The ids that they hold are lower-case by the contract. */
export function tagsOf(values: Record<string, string | undefined>): string[] {
  return Object.entries(values).flatMap(([key, value]) => (value === undefined ? [] : [`${key}:${value}`]));
}

/** The value of tag `key`, or undefined. */
export function tag(tags: readonly string[] | undefined, key: string): string | undefined {
  return tags?.find((each) => each.startsWith(`${key}:`))?.slice(key.length + 1);
}

export function isRole(role: string | undefined): role is Role {
  return ROLES.some((each) => each === role);
}

/** Reads a JWT; throws InvalidRequestError with field "jwt" where it is none of sandmesh's. */
export function identityOf(jwt: string): Identity {
  const claims = decodeJwt(jwt);
  const { tags } = claims.nats;
  const role = tag(tags, "role");
  if (!isRole(role)) {
    throw new InvalidRequestError("jwt has no role of sandmesh's: it was minted by something else", {
      field: "jwt",
    });
  }
  return {
    role,
    tenant: tag(tags, "tenant"),
    user: tag(tags, "user"),
    sandbox: tag(tags, "sandbox"),
    publicKey: claims.sub,
    expiresAtMs: claims.exp === undefined ? undefined : claims.exp * 1000,
  };
}
