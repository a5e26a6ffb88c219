// With the ConfigMap that pods are owned by, all of them go, though no pool is there.
import { expect } from "bun:test";
import { errorOf } from "../../../pool/testing/errors.ts";
import { needing } from "../needs.ts";
import { apply, kubectl, Place } from "./cluster.ts";

needing("kwok")(
  "the garbage collector takes the pods with their owner, and nothing is made without it",
  async () => {
    await using place = await Place.open({ ownerConfigMap: "release" });
    const missing = await errorOf(place.create());
    expect([missing.code, missing.reason]).toEqual(["provider_failed", "no_owner"]);
    const metadata = { name: "release", namespace: place.namespace };
    await apply({ apiVersion: "v1", kind: "ConfigMap", metadata });
    const sandbox = await place.createRunning();
    await kubectl(["-n", place.namespace, "delete", "configmap", "release"]);
    expect(await place.hears(sandbox, "lost")).toMatchObject({ reason: "deleted" });
  },
);
