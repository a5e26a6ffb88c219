import { expect, test } from "bun:test";
import { errorOf } from "./status.ts";

const of = (status: number, body: object = {}) => errorOf({ status, body }, "creating sandbox sb-1", "sb-1");

test("a quota that is used up is told as that, with the API server's numbers", () => {
  const message =
    'pods "sb-1" is forbidden: exceeded quota: team, requested: pods=1, used: pods=5, limited: pods=5';
  const error = of(403, { message, reason: "Forbidden" });
  expect(error.code).toBe("quota_exceeded");
  expect(error.message).toContain("used: pods=5");
  expect(error.sandbox).toBe("sb-1");
});

test("what an admission policy refuses is the spec's fault, not a missing right", () => {
  for (const message of [
    'pods "sb-1" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true',
    'admission webhook "x.example.com" denied the request: no',
    "ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
  ]) {
    expect(of(403, { message, reason: "Forbidden" })).toMatchObject({
      code: "unsupported",
      reason: "admission_denied",
    });
  }
  expect(of(403, { message: 'User "x" cannot create resource "pods"' }).code).toBe("permission_denied");
});

test("an invalid pod names the field in the spec's words", () => {
  const field = (name: string) =>
    of(422, { message: "invalid", reason: "Invalid", details: { causes: [{ field: name }] } }).field;
  expect(field("spec.containers[0].resources.limits[x]")).toBe("spec.extended_resources");
  expect(field("metadata.labels")).toBe("spec.labels");
  expect(field("spec.containers[0].image")).toBe("spec.image");
  expect(field("spec.containers[0].volumeMounts[1].mountPath")).toBe("spec.volumes");
  expect(field("spec.containers[0].workingDir")).toBe("spec.cwd");
  expect(field("spec.priority")).toBe("spec");
});

test("a namespace that was just made is no missing right: to be tried again", () => {
  const message =
    'pods "sb-1" is forbidden: error looking up service account x/default: serviceaccount "default" not found';
  expect(of(403, { message, reason: "Forbidden" })).toMatchObject({
    code: "provider_failed",
    retryable: true,
  });
});

test("refused credentials, too many requests and the server's own faults are the provider's", () => {
  expect(of(401)).toMatchObject({ code: "provider_failed", reason: "unauthorized" });
  expect(of(429)).toMatchObject({ code: "provider_failed", reason: "throttled" });
  expect(of(500)).toMatchObject({ code: "provider_failed", reason: "refused" });
  expect(errorOf({ status: 502, body: "<html>" }, "listing").message).toContain("502");
});
