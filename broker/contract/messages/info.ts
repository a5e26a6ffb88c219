// About a sandbox: ping and info; and `sh`, for people.
import * as v from "valibot";
import { Id } from "../ids.ts";
import { Fence, Version, whole } from "./common.ts";

export const PingRequest = v.object({ version: Version, ...Fence });
export const PingAnswer = v.object({ sandbox: Id, incarnation: v.string(), generation: whole("") });

export const InfoRequest = v.object({ version: Version, ...Fence });
export const InfoAnswer = v.object({
  sandbox: Id,
  tenant: Id,
  incarnation: v.string(),
  generation: whole(""),
  version: v.pipe(v.string(), v.description("The daemon's")),
  image: v.optional(v.string()),
  uptime_ms: whole(""),
  boot_ms: v.number(),
  pid: whole("The daemon's, as the sandbox sees it"),
  uid: whole("The daemon's"),
  hostname: v.string(),
  cwd: v.string(),
  shells: v.pipe(v.array(v.string()), v.description("Found in the image, best first")),
  cpus: v.number(),
  cpu_used_ms: v.optional(v.number()),
  memory_limit_bytes: v.optional(whole("")),
  memory_used_bytes: v.optional(whole("")),
  pids_limit: v.optional(whole("")),
  pids_used: v.optional(whole("")),
  disk_total_bytes: v.optional(whole("")),
  disk_free_bytes: v.optional(whole("")),
  commands_running: whole(""),
  sessions: whole(""),
  tree_end: v.optional(
    v.pipe(
      v.picklist(["cgroup", "search"]),
      v.description(
        "How a command's whole tree is ended: `cgroup`, which nothing in it escapes (commands without a time limit, stdin, pty or `wait: all` apart); `search` by session, parent and environment, which who leaves all three escapes",
      ),
    ),
  ),
  not_isolated: v.pipe(v.array(v.string()), v.description("What this sandbox shares with others, in words")),
});
export type InfoAnswer = v.InferOutput<typeof InfoAnswer>;

// `sh`: the body is a shell line as it is; the answer is its merged output as it is, cut at MAX_INLINE_BYTES, with
// headers `Sandmesh-Outcome` (describeOutcome), `Sandmesh-Status` (shellStatus), `Sandmesh-Dropped-Bytes` where cut,
// and `Sandmesh-Error` (code) where it could not run at all. A header `Timeout-Ms` of the request is its limit.
