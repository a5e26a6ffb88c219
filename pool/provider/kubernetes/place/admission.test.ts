import { expect, test } from "bun:test";
import { podView } from "../testing.ts";
import { admissionOf } from "./admission.ts";

test("a pod that kubelet refuses is told from one that ran and failed", () => {
  for (const reason of ["OutOfcpu", "OutOfpods", "OutOfmemory", "NodeAffinity", "UnexpectedAdmissionError"]) {
    expect(admissionOf(podView({ status: { phase: "Failed", reason } }))).toBe("refused");
  }
  for (const reason of ["Evicted", "DeadlineExceeded", ""]) {
    expect(admissionOf(podView({ status: { phase: "Failed", reason } }))).toBe("taken");
  }
});

test("a pod of which kubelet has said nothing is neither taken nor refused", () => {
  expect(admissionOf(podView({}))).toBeUndefined();
  const waiting = [{ name: "sandbox", state: { waiting: { reason: "ContainerCreating" } } }];
  expect(admissionOf(podView({ status: { containerStatuses: waiting } }))).toBe("taken");
  expect(admissionOf(podView({ status: { phase: "Running" } }))).toBe("taken");
  const deletionTimestamp = "2026-01-01T00:00:00Z";
  expect(admissionOf(podView({ metadata: { deletionTimestamp } }))).toBe("taken");
});
