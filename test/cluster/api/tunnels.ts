// An HTTP proxy that a kubeconfig names, between the provider and the API server: it counts connections, and can be cut.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { kubectl } from "./cluster.ts";

export interface Tunnels extends AsyncDisposable {
  readonly kubeconfig: string;
  /** Connections made so far. */
  readonly count: number;
  /** Ends all, and lets no new one through until `mend`. */
  cut(): void;
  mend(): void;
}

export async function openTunnels(): Promise<Tunnels> {
  const sockets: Socket[] = [];
  let count = 0;
  let whole = true;
  const proxy = createServer().on("connect", ({ url }, socket: Socket) => {
    if (!whole) return void socket.destroy();
    const [host = "", port] = (url ?? "").split(":");
    const onward = connect(Number(port), host, () => {
      socket.write("HTTP/1.1 200 OK\r\n\r\n");
      socket.pipe(onward).pipe(socket);
    });
    for (const each of [socket, onward]) each.on("error", () => undefined);
    sockets.push(socket, onward);
    count++;
  });
  await new Promise<void>((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  const { port } = proxy.address() as AddressInfo;
  const folder = await mkdtemp(join(tmpdir(), "sandmesh-proxy-"));
  const config = JSON.parse(
    await kubectl(["config", "view", "--raw", "--minify", "--flatten", "-o", "json"]),
  );
  config.clusters[0].cluster["proxy-url"] = `http://127.0.0.1:${port}`;
  const kubeconfig = join(folder, "kubeconfig");
  await writeFile(kubeconfig, JSON.stringify(config), { mode: 0o600 });
  const end = (): void => {
    for (const socket of sockets.splice(0)) socket.destroy();
  };
  return {
    kubeconfig,
    get count() {
      return count;
    },
    cut() {
      whole = false;
      end();
    },
    mend() {
      whole = true;
    },
    async [Symbol.asyncDispose]() {
      end();
      proxy.close();
      await rm(folder, { recursive: true });
    },
  };
}
