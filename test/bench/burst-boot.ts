// How long the burst's daemons take from their container's start: log-normal, median 50 ms, 99 of 100 below 160 ms.
// Measured on the real node: 16 to 26 ms in the middle.
import type { FateSettings } from "../../pool/provider/simulated/fate.ts";

export const BOOT: Pick<FateSettings, "bootMedianMs" | "bootSpread"> = { bootMedianMs: 50, bootSpread: 0.5 };
