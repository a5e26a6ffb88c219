// The server's side: the launcher, keys and minting, permissions, advisories.
export * from "./advisory.ts";
export * from "./binary.ts";
export * from "./connections.ts";
export { KeyBundle, KeyRing } from "./keyring.ts";
export * from "./permissions.ts";
export { type Exit, type Server, type ServerOptions, startServer } from "./start.ts";
