// What the launcher says of a failed launch, as the error that a user sees.
import {
  ImageError,
  InvalidRequestError,
  ProviderError,
  type SandboxSpec,
} from "../../../../broker/contract/index.ts";
import type { LaunchError } from "./launcher.ts";

/** `kind` user or image: of the image something is not so, user: that the spec may change; request: the spec is at fault; all
 * else is the machine's. */
export function launchError(
  sandbox: string,
  spec: SandboxSpec,
  { kind, errno, message, field }: LaunchError,
): ImageError | InvalidRequestError | ProviderError {
  const about = { sandbox, ...(field == null ? {} : { field }) };
  if (kind === "user" || kind === "image") return new ImageError(`image ${spec.image}: ${message}`, about);
  if (kind === "request") return new InvalidRequestError(`${field}: ${message}`, about);
  const number = errno === 0 ? "" : ` (errno ${errno})`;
  return new ProviderError(`sandbox ${sandbox} could not be started: ${message}${number}`, {
    sandbox,
    reason: kind,
  });
}
