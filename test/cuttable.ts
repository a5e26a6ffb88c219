// For tests: a way to a server that can be cut, with all that is on it.
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

export interface Cuttable extends AsyncDisposable {
  readonly url: string;
  /** Ends all connections that lead through here, in the middle of whatever they carry. New ones are let through. */
  cut(): void;
}

export async function cuttable(port: number): Promise<Cuttable> {
  const sockets = new Set<Socket>();
  const cut = () => {
    for (const socket of sockets) socket.destroy();
  };
  const proxy = createServer((near) => {
    const far = connect(port, "127.0.0.1");
    for (const [one, other] of [
      [near, far],
      [far, near],
    ] as const) {
      sockets.add(one);
      one.on("error", () => {});
      one.on("close", () => {
        sockets.delete(one);
        other.destroy();
      });
      one.pipe(other);
    }
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  return {
    url: `nats://127.0.0.1:${(proxy.address() as AddressInfo).port}`,
    cut,
    async [Symbol.asyncDispose]() {
      const closed = once(proxy, "close");
      proxy.close();
      cut();
      await closed;
    },
  };
}
