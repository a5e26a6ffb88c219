// A proxy that the kubeconfig names, between the provider and a real API server.
import { expect, setDefaultTimeout } from "bun:test";
import { needing } from "../needs.ts";
import { Place } from "./cluster.ts";
import { openTunnels } from "./tunnels.ts";

setDefaultTimeout(60_000);

needing("kwok")("requests and watches go through the proxy, and keep their connections", async () => {
  await using tunnels = await openTunnels();
  await using place = await Place.open({ kubeconfig: tunnels.kubeconfig, maxRequests: 2 });
  const names = await Promise.all(Array.from({ length: 10 }, () => place.create()));
  await Promise.all(names.map((name) => place.hears(name, "running")));
  expect(tunnels.count).toBeGreaterThan(0);
  // Two for requests, one for the watch, and what is begun anew.
  expect(tunnels.count).toBeLessThan(8);
});
