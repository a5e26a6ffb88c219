// What the launcher says of a failed launch, as the error that a user sees.
import { ImageError, ProviderError, type SandboxSpec } from "../../../../broker/contract/index.ts";
import type { LaunchError } from "./launcher.ts";

/** `kind` user: the image knows no such user, which is the spec's fault; all else is the machine's. */
export function launchError(
  sandbox: string,
  spec: SandboxSpec,
  { kind, errno, message }: LaunchError,
): ImageError | ProviderError {
  if (kind === "user")
    return new ImageError(`image ${spec.image}: ${message}`, { sandbox, field: "spec.user" });
  const number = errno === 0 ? "" : ` (errno ${errno})`;
  return new ProviderError(`sandbox ${sandbox} could not be started: ${message}${number}`, {
    sandbox,
    reason: kind,
  });
}
