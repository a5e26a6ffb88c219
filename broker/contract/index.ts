// The contract: subjects, messages, codec, errors, outcomes. Pure; everyone imports it.
export * from "./core.ts";
export * from "./messages/exec.ts";
export * from "./messages/files.ts";
export * from "./messages/index.ts";
export * from "./messages/info.ts";
export * from "./messages/pool.ts";
export * from "./messages/session.ts";
export * from "./messages/spec.ts";
export * from "./messages/trees.ts";
export * from "./outcome.ts";
export * from "./signals.ts";
