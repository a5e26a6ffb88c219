// The renewing thread: started by renewer.ts, never imported.
import { parentPort, workerData } from "node:worker_threads";
import { check } from "../../../broker/contract/index.ts";
import { Keeper, openPatiently } from "./keeper.ts";
import { type FromThread, KeeperData, type ToKeeper } from "./protocol.ts";

const { settings } = check(KeeperData, workerData);
const tell = (message: FromThread) => parentPort?.postMessage(message);
const connecting = openPatiently(settings);
const keeper = new Keeper(connecting, tell);
connecting.then(
  () => tell({ type: "connected" }),
  (error: unknown) =>
    tell({ type: "unconnected", why: error instanceof Error ? error.message : String(error) }),
);

parentPort?.on("message", (message: ToKeeper) => {
  switch (message.type) {
    case "keep":
      keeper.keep(message.run, message.leaseMs);
      break;
    case "drop":
      keeper.drop(message.run);
      break;
    case "release":
      void keeper.release(message).finally(() => {
        Atomics.store(message.done, 0, 1);
        Atomics.notify(message.done, 0);
      });
      break;
  }
});
