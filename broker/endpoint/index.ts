// A sandbox's side of the wire. Who embeds it passes what executes (executor.ts).

export { type End, type Endpoint, type EndpointOptions, openEndpoint } from "./endpoint.ts";
export { type Enrolled, enrol } from "./enrol.ts";
export type * from "./executor.ts";
export { type Log, SILENT } from "./log.ts";
export { RETENTION, type Retention } from "./retention.ts";
