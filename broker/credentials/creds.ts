// Credentials, and the .creds file that carries them, as the nats command line reads it.
import { InvalidRequestError } from "../contract/core.ts";
import { decodeJwt } from "./jwt.ts";
import { publicKeyOf } from "./nkeys.ts";

export interface Credentials {
  /** The user's JWT. */
  jwt: string;
  /** The seed of the key that the JWT is about. */
  seed: string;
}

const BLOCK = /-{3,}BEGIN ([A-Z ]+)-{3,}\s+(\S+)\s+-{3,}END \1-{3,}/g;
/** No .creds file is larger; a larger text is refused unread. */
const MAX_CREDS_CHARACTERS = 128 * 1024;

/** Reads a .creds file's text; throws InvalidRequestError with field "credentials", "jwt" or "seed". */
export function parseCreds(text: string): Credentials {
  if (typeof text !== "string" || text.length > MAX_CREDS_CHARACTERS) {
    throw new InvalidRequestError("credentials are not a .creds file", { field: "credentials" });
  }
  const blocks = new Map<string, string>();
  for (const [, label, content] of text.matchAll(BLOCK)) {
    if (label !== undefined && content !== undefined) blocks.set(label, content);
  }
  const jwt = blocks.get("NATS USER JWT");
  const seed = blocks.get("USER NKEY SEED");
  if (jwt === undefined) {
    throw new InvalidRequestError("credentials have no block NATS USER JWT", { field: "credentials" });
  }
  if (seed === undefined) {
    throw new InvalidRequestError("credentials have no block USER NKEY SEED", { field: "credentials" });
  }
  return checkCredentials({ jwt, seed });
}

/** Checks that JWT and seed are whole and belong together; throws InvalidRequestError. */
function checkCredentials(credentials: Credentials): Credentials {
  const claims = decodeJwt(credentials.jwt);
  if (claims.nats.type !== "user") {
    throw new InvalidRequestError(`jwt is about an ${claims.nats.type}, not a user`, { field: "jwt" });
  }
  if (publicKeyOf(credentials.seed) !== claims.sub) {
    throw new InvalidRequestError("seed is not of the key that the jwt is about", { field: "seed" });
  }
  return credentials;
}

/** The text of a .creds file. Keep it readable by its owner alone. */
export function formatCreds(credentials: Credentials): string {
  return [
    "-----BEGIN NATS USER JWT-----",
    credentials.jwt,
    "------END NATS USER JWT------",
    "",
    "************************* IMPORTANT *************************",
    "NKEY Seed printed below can be used to sign and prove identity.",
    "NKEYs are sensitive and should be treated as secrets.",
    "",
    "-----BEGIN USER NKEY SEED-----",
    credentials.seed,
    "------END USER NKEY SEED------",
    "",
    "*************************************************************",
    "",
  ].join("\n");
}
