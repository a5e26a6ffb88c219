// An API server that does not remember what a watch asks for (410 Gone), as after its restart or etcd's compaction.
import { expect, setDefaultTimeout } from "bun:test";
import { needing } from "../needs.ts";
import { restartApiServer } from "../programs.ts";
import { kubectl, Place } from "./cluster.ts";
import { openTunnels } from "./tunnels.ts";

setDefaultTimeout(120_000);

needing("programs", "kwok")(
  "what happened while the watch was away is told by one list, where its history is gone",
  async () => {
    await using tunnels = await openTunnels();
    await using place = await Place.open({ kubeconfig: tunnels.kubeconfig });
    const [stays, goes] = [await place.createRunning(), await place.createRunning()];
    const { requests } = place.provider;
    tunnels.cut();
    await kubectl(["-n", place.namespace, "delete", "pod", goes, "--grace-period=1"]);
    // What it remembers begins after the last version that the watch has seen.
    await restartApiServer();
    const before = requests.sent;
    tunnels.mend();
    expect((await place.hears(goes, "lost")).reason).toBe("deleted");
    expect(requests.sent - before).toBe(1);
    await place.createRunning();
    expect(place.told.filter(({ sandbox }) => sandbox === stays).map(({ type }) => type)).toEqual([
      "running",
    ]);
  },
);
