// What the doctor says of a real API server, at each Pod Security level, and that it leaves nothing.
import { expect, test } from "bun:test";
import { openAccess } from "../../../pool/provider/kubernetes/api/access.ts";
import { diagnose } from "../../../pool/provider/kubernetes/index.ts";
import { FOREIGN } from "../needs.ts";
import { kubectl, Place } from "./cluster.ts";

for (const [level, byHostPath, words] of [
  ["privileged", true, "admitted; "],
  ["baseline", false, "admitted; "],
  ["restricted", false, "admitted with capabilities strict and runAsNonRoot"],
] as const) {
  test(`under ${level} it says which ways the daemon may take`, async () => {
    await using place = await Place.open({}, { "pod-security.kubernetes.io/enforce": level });
    const found = await diagnose({ ...openAccess(undefined, undefined), namespace: place.namespace });
    const of = (check: string) => found.find((each) => each.check === `kubernetes ${check}`);
    expect(found[0]).toMatchObject({ check: "kubernetes", ok: true });
    expect(found[0]?.detail).toStartWith("v1.");
    expect([of("rights")?.ok, of("direct")?.ok]).toEqual([true, true]);
    expect(of("pod security")?.detail).toBe(`namespace ${place.namespace}: enforces ${level}`);
    // Ours has the feature of image volumes on.
    for (const way of FOREIGN ? ["init"] : ["image", "init"]) {
      expect(of(`daemon by ${way}`)).toMatchObject({ ok: true });
      expect(of(`daemon by ${way}`)?.detail).toStartWith(words);
    }
    expect(of("daemon by hostPath")?.ok).toBe(byHostPath);
    if (!byHostPath) expect(of("daemon by hostPath")?.detail).toContain(`violates PodSecurity "${level}`);
    expect(await kubectl(["-n", place.namespace, "get", "pods", "-o", "name"])).toBe("");
  });
}
