// What the API server's refusals mean here: one of our errors, by its status and reason.
import * as v from "valibot";
import {
  ConflictError,
  PermissionDeniedError,
  ProviderError,
  QuotaExceededError,
  type SandmeshError,
  UnsupportedError,
} from "../../../../broker/contract/index.ts";
import type { ApiReply } from "./transport.ts";

/** metav1.Status. */
const Status = v.object({
  message: v.optional(v.string(), ""),
  reason: v.optional(v.string(), ""),
  details: v.optional(
    v.object({ causes: v.optional(v.array(v.object({ field: v.optional(v.string()) })), []) }),
  ),
});

/** `what`: what was being done, to which sandbox. */
export function errorOf({ status, body }: ApiReply, what: string, sandbox?: string): SandmeshError {
  const parsed = v.safeParse(Status, body);
  const { message, reason, details } = parsed.success
    ? parsed.output
    : { message: "", reason: "", details: undefined };
  const said = `${what}: the API server answered ${status} ${reason}: ${message}`;
  const detail = sandbox === undefined ? {} : { sandbox };
  if (status === 401) return new ProviderError(said, { ...detail, reason: "unauthorized" });
  if (status === 403 && /exceeded quota/.test(message)) return new QuotaExceededError(said, detail);
  if (/violates PodSecurity|admission webhook|ValidatingAdmissionPolicy/.test(message)) {
    return new UnsupportedError(said, { ...detail, field: "spec", reason: "admission_denied" });
  }
  // A namespace that was just made has none yet; the controller makes it.
  if (status === 403 && /error looking up service account/.test(message)) {
    return new ProviderError(said, { ...detail, reason: "refused" });
  }
  if (status === 403) return new PermissionDeniedError(said, { ...detail, reason: "forbidden" });
  if (status === 422 || status === 400) {
    return new UnsupportedError(said, { ...detail, field: fieldOf(details?.causes[0]?.field) });
  }
  if (status === 409) return new ConflictError(said, detail);
  return new ProviderError(said, { ...detail, reason: status === 429 ? "throttled" : "refused" });
}

/** The pod's field in the spec's words, where there is one. */
function fieldOf(field: string | undefined): string {
  if (field === undefined) return "spec";
  if (/resources/.test(field)) return "spec.extended_resources";
  if (/labels/.test(field)) return "spec.labels";
  if (/\.image$/.test(field)) return "spec.image";
  if (/volume/i.test(field)) return "spec.volumes";
  if (/workingDir/.test(field)) return "spec.cwd";
  return "spec";
}
