// For tests: a real nats-server, a pool in this process with a provider double, and users who ask it.

import type * as v from "valibot";
import {
  type AcquireRequest,
  ConfirmAnswer,
  encode,
  Grant,
  ListAnswer,
  newUuidV7,
  POOL_VERBS,
  parseAnswer,
  poolSubject,
  ReleaseAnswer,
  RenewAnswer,
  StatusAnswer,
} from "../../broker/contract/index.ts";
import type { Link } from "../../broker/link/link.ts";
import type { ServerOptions } from "../../broker/server/start.ts";
import { type TestServer, testServer } from "../../broker/server/testing.ts";
import type { PoolLimits } from "../config.ts";
import { type Pool, type PoolOptions, startPool } from "../service/pool.ts";
import { ProviderDouble } from "./provider.ts";
import { MemoryRecords } from "./store.ts";

/** Short, so that a test that waits for one is quick; long enough for a busy machine where nothing shall pass. */
export const SHORT: Partial<PoolLimits> = {
  confirmMs: 3_000,
  disconnectGraceMs: 500,
  secondConnectionGraceMs: 300,
  recoveryGraceMs: 5_000,
  removeRetryMinMs: 20,
  removeRetryMaxMs: 100,
  reconcileMs: 500,
};

export const QUICK = { firstMs: 20, baseMs: 50, maxMs: 200 };

type Ask = Partial<AcquireRequest> & { image?: string };

/** A user of the pool. */
export class Caller {
  readonly link: Link;

  constructor(link: Link) {
    this.link = link;
  }

  async ask<S extends v.GenericSchema<unknown, unknown>>(
    verb: string,
    request: object,
    answer: S,
    timeoutMs = 20_000,
  ): Promise<v.InferOutput<S>> {
    const message = await this.link.request("pool", poolSubject(this.link.tenant, verb), encode(request), {
      timeoutMs,
    });
    return parseAnswer(answer, message.data);
  }

  acquire({ image = "host", ...ask }: Ask = {}, timeoutMs?: number): Promise<Grant> {
    const request = { version: 1, id: newUuidV7(), run: "run-1", spec: { image }, ...ask };
    return this.ask("acquire", request, Grant, timeoutMs);
  }

  confirm({ sandbox, generation }: Pick<Grant, "sandbox" | "generation">, timeoutMs?: number) {
    return this.ask("confirm", { version: 1, sandbox, generation }, ConfirmAnswer, timeoutMs);
  }

  async lease(ask: Ask = {}, timeoutMs?: number): Promise<Grant> {
    const grant = await this.acquire(ask, timeoutMs);
    await this.confirm(grant, timeoutMs);
    return grant;
  }

  renew(run = "run-1", lease_ms?: number) {
    return this.ask(
      "renew",
      { version: 1, run, ...(lease_ms === undefined ? {} : { lease_ms }) },
      RenewAnswer,
    );
  }

  release(what: Record<string, unknown>) {
    return this.ask("release", { version: 1, ...what }, ReleaseAnswer);
  }

  list(more: Record<string, unknown> = {}) {
    return this.ask("list", { version: 1, ...more }, ListAnswer);
  }

  status() {
    return this.ask("status", { version: 1 }, StatusAnswer);
  }

  drain(more: Record<string, unknown> = {}) {
    return this.ask("drain", { version: 1, ...more }, POOL_VERBS.drain.answer);
  }
}

export class TestMesh implements AsyncDisposable {
  readonly server: TestServer;
  readonly provider = new ProviderDouble();
  readonly records = new MemoryRecords();
  #pool: Pool | undefined;

  constructor(server: TestServer) {
    this.server = server;
  }

  get pool(): Pool {
    if (this.#pool === undefined) throw new Error("no pool runs");
    return this.#pool;
  }

  async start(limits: Partial<PoolLimits> = {}, more: Partial<PoolOptions> = {}): Promise<Pool> {
    const { server, provider } = this;
    this.#pool = await startPool({
      link: await server.pool({ reconnect: QUICK }),
      store: this.records.open(),
      minter: server.keys,
      providers: [provider],
      daemonUrls: [server.url],
      limits: { ...SHORT, ...limits },
      ...more,
    });
    return this.#pool;
  }

  async caller(user = "ann", tenant = "acme"): Promise<Caller> {
    return new Caller(await this.server.user(tenant, user, { reconnect: QUICK }));
  }

  async operator(user = "root", tenant = "acme"): Promise<Caller> {
    return new Caller(await this.server.operator(tenant, user, { reconnect: QUICK }));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.provider.end();
    await this.#pool?.close();
    await this.server.close();
  }
}

export async function testMesh(
  limits?: Partial<PoolLimits>,
  server: Partial<ServerOptions> = {},
): Promise<TestMesh> {
  const mesh = new TestMesh(await testServer(server));
  await mesh.start(limits);
  return mesh;
}
