// For tests: a way to a server that can be cut, with all that is on it.
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";

export interface Cuttable extends AsyncDisposable {
  readonly url: string;
  /** Ends all connections that lead through here, in the middle of whatever they carry. New ones are let through. */
  cut(): void;
  /** As `cut`, and lets none through until `open`. */
  block(): { open(): void };
  /** Cuts the newest connection, of which the server sees nothing until `end`. */
  cutUnseen(): { end(): void };
}

interface Way {
  near: Socket;
  far: Socket;
  end(): void;
}

export async function cuttable(port: number): Promise<Cuttable> {
  const ways = new Set<Way>();
  let blocked = false;
  const cut = () => {
    for (const way of [...ways]) way.end();
  };
  const proxy = createServer((near) => {
    if (blocked) {
      near.destroy();
      return;
    }
    const far = connect(port, "127.0.0.1");
    const end = () => {
      ways.delete(way);
      for (const socket of [near, far]) socket.destroy();
    };
    const way = { near, far, end };
    ways.add(way);
    for (const socket of [near, far]) socket.on("error", () => {}).on("close", end);
    near.pipe(far).pipe(near);
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  return {
    url: `nats://127.0.0.1:${(proxy.address() as AddressInfo).port}`,
    cut,
    block() {
      blocked = true;
      cut();
      return {
        open() {
          blocked = false;
        },
      };
    },
    cutUnseen() {
      const way = [...ways].at(-1);
      if (way === undefined) throw new Error("there is no connection");
      const { near, far, end } = way;
      near.off("close", end).unpipe(far);
      far.unpipe(near);
      near.destroy();
      return { end };
    },
    async [Symbol.asyncDispose]() {
      const closed = once(proxy, "close");
      proxy.close();
      cut();
      await closed;
    },
  };
}
