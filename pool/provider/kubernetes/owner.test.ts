import { expect, test } from "bun:test";
import { errorOf as thrownBy } from "../../testing/errors.ts";
import type { ApiReply } from "./api/transport.ts";
import { Owner } from "./owner.ts";
import { podOf } from "./pod.ts";
import { requestOf, settingsOf } from "./testing.ts";

const signal = new AbortController().signal;
const map = (uid: string): ApiReply => ({ status: 200, body: { metadata: { uid } } });

/** An owner whose clock and whose API server's answers are the test's; the last answer stays. */
function ownerOf(...answers: ApiReply[]) {
  const asked: string[] = [];
  const clock = { now: 0 };
  const transport = {
    request: async ({ path }: { path: string }) => {
      asked.push(path);
      return answers[Math.min(asked.length, answers.length) - 1] ?? map("none");
    },
  };
  return { owner: new Owner(transport, "boxes", "release", () => clock.now), asked, clock };
}

test("a burst reads it once, and one that was made anew is found within half a minute", async () => {
  const { owner, asked, clock } = ownerOf(map("u1"), map("u2"));
  const all = await Promise.all(Array.from({ length: 100 }, () => owner.reference(signal)));
  expect(asked).toEqual(["/api/v1/namespaces/boxes/configmaps/release"]);
  expect(new Set(all.map(({ uid }) => uid))).toEqual(new Set(["u1"]));
  clock.now = 29_999;
  expect((await owner.reference(signal)).uid).toBe("u1");
  clock.now = 30_000;
  expect((await owner.reference(signal)).uid).toBe("u2");
});

test("where it is gone or forbidden nothing is made, the error says so, and its return is seen at once", async () => {
  const { owner } = ownerOf(
    { status: 404, body: {} },
    { status: 403, body: { reason: "Forbidden" } },
    map("u3"),
  );
  const gone = await thrownBy(owner.reference(signal));
  expect([gone.code, gone.reason]).toEqual(["provider_failed", "no_owner"]);
  expect(gone.message).toContain("ConfigMap release in namespace boxes");
  expect(await thrownBy(owner.reference(signal))).toMatchObject({ code: "permission_denied" });
  expect((await owner.reference(signal)).uid).toBe("u3");
});

test("the pod names it, without a right to keep it from going", async () => {
  const reference = await ownerOf(map("u1")).owner.reference(signal);
  const { metadata } = podOf(requestOf(), settingsOf(), reference);
  expect(metadata?.ownerReferences).toEqual([
    { apiVersion: "v1", kind: "ConfigMap", name: "release", uid: "u1" },
  ]);
  expect(podOf(requestOf(), settingsOf()).metadata).not.toHaveProperty("ownerReferences");
});
