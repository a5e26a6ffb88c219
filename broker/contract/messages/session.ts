// Persistent shells: state lives on from one exec to the next.
import * as v from "valibot";
import { Id } from "../ids.ts";
import { Env, Fence, Path, Version, whole } from "./common.ts";

/** `session_open`: starts the shell, with the file that its environment names (BASH_ENV, ENV, …). Opening an open one with the same settings answers it. */
export const SessionOpenRequest = v.object({
  version: Version,
  ...Fence,
  session: Id,
  shell: v.optional(
    v.pipe(
      v.string(),
      v.maxLength(4096),
      v.description("bash, dash, sh, zsh or a path; default the image's best"),
    ),
  ),
  cwd: v.optional(Path),
  env: v.optional(Env),
});
export const SessionView = v.object({ session: Id, shell: v.string(), pid: whole(""), busy: v.boolean() });
export type SessionView = v.InferOutput<typeof SessionView>;
/** `session_close`: ends the shell and what it runs. Closing a closed one succeeds. */
export const SessionCloseRequest = v.object({ version: Version, ...Fence, session: Id });
export const SessionCloseAnswer = v.object({ closed: v.boolean() });
/** `sessions`: those open. */
export const SessionsRequest = v.object({ version: Version, ...Fence });
export const SessionsAnswer = v.object({ sessions: v.array(SessionView) });
