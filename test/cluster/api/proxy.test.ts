// A proxy that the kubeconfig names, between the provider and a real API server.
import { expect, setDefaultTimeout, test } from "bun:test";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { kubectl, Place } from "./cluster.ts";

setDefaultTimeout(60_000);

test("requests and watches go through the proxy, and keep their connections", async () => {
  const tunnels: Socket[] = [];
  const proxy = createServer().on("connect", ({ url }, socket: Socket) => {
    const [host = "", port] = (url ?? "").split(":");
    const onward = connect(Number(port), host, () => {
      socket.write("HTTP/1.1 200 OK\r\n\r\n");
      socket.pipe(onward).pipe(socket);
    });
    for (const each of [socket, onward]) each.on("error", () => undefined);
    tunnels.push(socket, onward);
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const folder = await mkdtemp(join(tmpdir(), "sandmesh-proxy-"));
  try {
    const { port } = proxy.address() as AddressInfo;
    const config = JSON.parse(await kubectl(["config", "view", "--raw", "--minify", "-o", "json"]));
    config.clusters[0].cluster["proxy-url"] = `http://127.0.0.1:${port}`;
    const kubeconfig = join(folder, "kubeconfig");
    await writeFile(kubeconfig, JSON.stringify(config));
    await using place = await Place.open({ kubeconfig, maxRequests: 2 });
    const names = await Promise.all(Array.from({ length: 10 }, () => place.create()));
    await Promise.all(names.map((name) => place.hears(name, "running")));
    expect(tunnels.length / 2).toBeGreaterThan(0);
    // Two for requests, one for the watch, and what is begun anew.
    expect(tunnels.length / 2).toBeLessThan(8);
  } finally {
    for (const tunnel of tunnels) tunnel.destroy();
    proxy.close();
    await rm(folder, { recursive: true });
  }
});
