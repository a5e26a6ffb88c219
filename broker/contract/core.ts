// What of the contract a connection and a boot need: the rest takes 2 ms to build, and comes while the pool answers.
export * from "./codec.ts";
export * from "./errors.ts";
export * from "./ids.ts";
export * from "./messages/common.ts";
export * from "./messages/control.ts";
export * from "./subjects.ts";
export * from "./validate.ts";
