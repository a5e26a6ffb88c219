// For tests of providers alone: what the pool asks of them, for a daemon that nobody will hear.
import type { SandboxSpec } from "../../broker/contract/index.ts";
import { createOperatorKeys, keyRingOf } from "../../broker/server/operator.ts";
import type { CreateRequest } from "../provider/provider.ts";

const keys = keyRingOf(createOperatorKeys());
const TTL_MS = 600_000;

/** Nobody listens on port 1: its daemon goes on trying, as it would while its server starts. */
export const unheard = (sandbox: string, spec: SandboxSpec, maxLifeMs = TTL_MS): CreateRequest => ({
  sandbox,
  tenant: "acme",
  run: "run-1",
  spec,
  maxLifeMs,
  bootstrap: {
    version: 1,
    urls: ["nats://127.0.0.1:1"],
    tenant: "acme",
    sandbox,
    generation: 1,
    ...keys.mintBootstrap({ tenant: "acme", sandbox, ttlMs: TTL_MS }),
    boot_timeout_ms: TTL_MS,
  },
});
