// Credentials: keys, JWTs, `.creds` files and the authenticator, on node:crypto alone.
export * from "./authenticator.ts";
export * from "./creds.ts";
export * from "./identity.ts";
export * from "./jwt.ts";
export * from "./nkeys.ts";
