// The pool over HTTP, for the cluster it runs in: /healthz, /readyz and /metrics. It serves no user and changes nothing.
import { Hono } from "hono";
import { InvalidRequestError } from "../../broker/contract/index.ts";
import { LISTEN_ADDRESS } from "../config.ts";
import type { PoolMetrics } from "./metrics.ts";

/** A client that says nothing for this long is let go. */
const IDLE_S = 10;
const MAX_BODY_BYTES = 1024;

export interface HttpServer {
  readonly url: string;
  stop(): Promise<void>;
}

export interface HttpOptions {
  /** HOST:PORT; port 0 is a free one. */
  listen: string;
  metrics: Pick<PoolMetrics, "render" | "contentType">;
  /** Why the pool cannot answer, in words; undefined where it can. */
  notReady(): string | undefined;
}

function poolApp({ metrics, notReady }: Omit<HttpOptions, "listen">): Hono {
  const app = new Hono();
  // That it answers at all is the proof; a pool that may not go on ends its process.
  app.get("/healthz", (c) => c.text("ok\n"));
  app.get("/readyz", (c) => {
    const why = notReady();
    return why === undefined ? c.text("ok\n") : c.text(`not ready: ${why}\n`, 503);
  });
  app.get("/metrics", async (c) =>
    c.body(await metrics.render(), 200, { "content-type": metrics.contentType }),
  );
  app.notFound((c) => c.text("there is /healthz, /readyz and /metrics\n", 404));
  app.onError((_error, c) => c.text("internal error\n", 500));
  return app;
}

/** Throws InvalidRequestError where the address cannot be listened on. */
export function serveHttp(options: HttpOptions): HttpServer {
  const { host, port } = splitAddress(options.listen);
  const { fetch } = poolApp(options);
  try {
    const server = Bun.serve({
      hostname: host,
      port,
      idleTimeout: IDLE_S,
      maxRequestBodySize: MAX_BODY_BYTES,
      development: false,
      fetch: (request) => fetch(request),
    });
    return { url: server.url.href, stop: () => server.stop(true) };
  } catch (cause) {
    const message = `httpListen ${options.listen}: ${cause instanceof Error ? cause.message : String(cause)}`;
    throw new InvalidRequestError(message, { field: "httpListen", cause });
  }
}

function splitAddress(listen: string): { host: string; port: number } {
  const [, host = "", port = ""] = LISTEN_ADDRESS.exec(listen) ?? [];
  return { host: host.replace(/^\[|\]$/g, ""), port: Number(port) };
}
