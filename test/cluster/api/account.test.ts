// What becomes of a service account's rights under way: its token runs out, or the API server asks it for quiet (429).
import { expect, setDefaultTimeout } from "bun:test";
import { until } from "../../../broker/server/testing.ts";
import { beside, errorOf } from "../../../pool/testing/errors.ts";
import { needing } from "../needs.ts";
import { frozen } from "../programs.ts";
import { Account, makeAccount, shortTokenOf, Throttle, tokenOf } from "./account.ts";
import { kubectl, Place } from "./cluster.ts";

setDefaultTimeout(150_000);
const soon = () => AbortSignal.timeout(60_000);

needing("kwok")(
  "a token that is refused is read anew from its file; one that stays refused says so",
  async () => {
    using account = await Account.open();
    account.hold("none");
    await using place = await Place.open({ kubeconfig: account.kubeconfig });
    expect((await errorOf(place.provider.list(soon()))).reason).toBe("unauthorized");
    await makeAccount(place.namespace);
    account.hold(await tokenOf(place.namespace));
    await place.createRunning();
  },
);

needing("programs", "kwok")(
  "a token that runs out under way is followed by the one that its file has by then, and nobody hears of it",
  async () => {
    using account = await Account.open();
    await using place = await Place.open({ kubeconfig: account.kubeconfig });
    await makeAccount(place.namespace);
    const short = await shortTokenOf(place.namespace, 8);
    account.hold(short);
    const first = await place.createRunning();
    account.hold(await tokenOf(place.namespace));
    const kubeconfig = account.kubeconfigWith({ token: short });
    const refused = () =>
      kubectl(["--kubeconfig", kubeconfig, "-n", place.namespace, "get", "pods"]).then(
        () => false,
        (error) => /Unauthorized|must be logged in/.test(String(error)),
      );
    await until("the first token has run out", refused, 60_000, 200);
    const second = await place.createRunning();
    const third = await place.createRunning();
    expect(place.told.map(({ sandbox, type }) => [sandbox, type])).toEqual(
      [first, second, third].map((sandbox) => [sandbox, "running"]),
    );
  },
);

needing("programs", "kwok")(
  "an API server that asks for quiet gets it: what was begun waits, and each is made once",
  async () => {
    const maxRequests = 4;
    using account = await Account.open();
    await using place = await Place.open({ kubeconfig: account.kubeconfig, maxRequests });
    await makeAccount(place.namespace);
    account.hold(await tokenOf(place.namespace));
    // The provider sends no create before its first list, which it could not have while etcd is frozen.
    const first = await place.createRunning();
    const { requests } = place.provider;
    await using throttle = await Throttle.open(place.namespace);
    // One at a time passes where there is no place for any: that one waits for etcd.
    const made = await frozen("etcd", async () => {
      const creating = beside(Promise.all(Array.from({ length: 20 }, () => place.create())));
      const began = performance.now();
      await until("it is asked several times", () => requests.throttled >= 4 * maxRequests, 60_000, 10);
      // It asks for a second at least.
      const rounds = 1 + (performance.now() - began) / 1000;
      expect(requests.throttled).toBeLessThanOrEqual(maxRequests * rounds);
      return creating;
    });
    await throttle.loosen();
    const names = [first, ...(await made())];
    await Promise.all(names.map((name) => place.hears(name, "running")));
    expect((await place.provider.list(soon())).map(({ sandbox }) => sandbox).sort()).toEqual(names.sort());
  },
);
