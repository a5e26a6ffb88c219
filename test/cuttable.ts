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
  /** Cuts the next connection on which something is published to `….VERB`: the server has all before it, and of it nothing
   * whole. Resolves then. */
  cutAt(verb: string): Promise<void>;
}

/** Longer than the line that a message begins with. */
const LINE_BYTES = 1024;

/** Where the next message to `….VERB` begins; undefined where none does. Of a line in two pieces the first one is passed on. */
function beginOf(verb: string): (piece: Buffer) => number | undefined {
  const line = new RegExp(`(?:^|\\r\\n)H?PUB \\S+\\.${verb} `);
  let before = "";
  return (piece) => {
    const text = before + piece.toString("latin1");
    const at = line.exec(text)?.index;
    const passed = before.length;
    before = text.slice(-LINE_BYTES);
    return at === undefined ? undefined : Math.max(0, at - passed);
  };
}

interface Way {
  near: Socket;
  far: Socket;
  end(): void;
}

export async function cuttable(port: number): Promise<Cuttable> {
  const ways = new Set<Way>();
  let blocked = false;
  let armed: { verb: string; fired: () => void } | undefined;
  const cut = () => {
    for (const way of [...ways]) way.end();
  };
  /** Passes on what comes, up to the message that is waited for. */
  const passOn = ({ near, far, end }: Way) => {
    let found: { verb: string; begin: ReturnType<typeof beginOf> } | undefined;
    near.on("data", (piece: Buffer) => {
      if (found?.verb !== armed?.verb) found = armed && { verb: armed.verb, begin: beginOf(armed.verb) };
      const at = found?.begin(piece);
      if (at === undefined) {
        if (far.write(piece)) return;
        near.pause();
        far.once("drain", () => near.resume());
        return;
      }
      const fired = armed?.fired;
      armed = undefined;
      near.pause();
      far.write(piece.subarray(0, at), () => {
        end();
        fired?.();
      });
    });
    near.on("end", () => far.end());
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
    passOn(way);
    far.pipe(near);
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
      // Of its end, too, the server is told nothing.
      near.off("close", end).removeAllListeners("data").removeAllListeners("end");
      far.unpipe(near);
      near.destroy();
      return { end };
    },
    cutAt: (verb) =>
      new Promise((fired) => {
        armed = { verb, fired };
      }),
    async [Symbol.asyncDispose]() {
      const closed = once(proxy, "close");
      proxy.close();
      cut();
      await closed;
    },
  };
}
