// Examples of the messages of the pool and the daemon's control.
import { type Examples, ID, ID2, LIFE } from "./example.ts";

const spec = { image: "host" };
const acquire = { version: 1, id: ID, run: "run-1", spec };
const withSpec = (more: Record<string, unknown>) => ({ ...acquire, spec: { ...spec, ...more } });
const timeline = { queued_ms: 0.5, created_ms: 3, enrolled_ms: 20.25, ready_ms: 25 };
const grant = {
  sandbox: "sb-1",
  run: "run-1",
  lease: ID,
  generation: 1,
  incarnation: LIFE,
  lease_ms: 60_000,
  confirm_ms: 10_000,
  provider: "local",
  timeline,
};
const key = `U${"A".repeat(55)}`;
const bootstrap = {
  version: 1,
  urls: ["nats://127.0.0.1:4222"],
  tenant: "default",
  sandbox: "sb-1",
  generation: 1,
  jwt: "e.y.J",
  seed: "SU",
  boot_timeout_ms: 60_000,
};
const words = (value: Record<string, unknown>): Examples => ({
  good: { one: value },
  bad: {
    "another version": [{ ...value, version: 9 }, "version"],
    "generation 0": [{ ...value, generation: 0 }, "generation"],
  },
});

export const POOL_EXAMPLES: Record<string, Examples> = {
  "pool.acquire.request": {
    good: {
      least: { spec },
      "of a client": { id: ID, run: "r", spec },
      "a spec with all": {
        ...withSpec({
          image_pull_secrets: ["reg"],
          cpu: 0.5,
          memory_bytes: 536_870_912,
          disk_bytes: 1_048_576,
          pids: 256,
          env: { A: "1", B: null },
          user: "1000:1000",
          cwd: "/srv",
          network: "policy:offline",
          volumes: [{ name: "data", source: "/data", mount_path: "/mnt" }],
          sidecars: [{ name: "db", image: "postgres", command: ["postgres"], env: {} }],
          extended_resources: { "nvidia.com/gpu": 1 },
          entrypoint: false,
          template: "t",
          provider: "local",
          labels: { task: "a" },
        }),
        timeout_ms: 1,
        lease_ms: 1000,
        max_life_ms: 1000,
      },
    },
    bad: {
      "another version": [{ ...acquire, version: 2 }, "version"],
      "an id that is none": [{ ...acquire, id: "mine" }, "id"],
      "a run with a wildcard": [{ ...acquire, run: "*" }, "run"],
      "a run of 64": [{ ...acquire, run: "r".repeat(64) }, "run"],
      "no spec": [{ ...acquire, spec: undefined }, "spec"],
      "no image": [{ ...acquire, spec: {} }, "spec.image"],
      "an empty image": [withSpec({ image: "" }), "spec.image"],
      "no processor": [withSpec({ cpu: 0 }), "spec.cpu"],
      "memory as text": [withSpec({ memory_bytes: "512MiB" }), "spec.memory_bytes"],
      "too little memory": [withSpec({ memory_bytes: 1024 }), "spec.memory_bytes"],
      "a network that is none": [withSpec({ network: "internet" }), "spec.network"],
      "a volume to write to": [
        withSpec({ volumes: [{ name: "d", source: "/d", mount_path: "/m", read_only: false }] }),
        "spec.volumes.0.read_only",
      ],
      "two volumes in one place": [
        withSpec({
          volumes: ["/m", "/m/"].map((mount_path, i) => ({ name: `d${i}`, source: "/d", mount_path })),
        }),
        "spec.volumes",
      ],
      "a lease under a second": [{ ...acquire, lease_ms: 999 }, "lease_ms"],
      "a lease of a week": [{ ...acquire, lease_ms: 604_800_000 }, "lease_ms"],
    },
  },
  "pool.acquire.answer": {
    good: {
      one: grant,
      "a limit that is not held": { ...grant, warnings: ["memory: the limit is not enforced"] },
    },
    bad: {
      "a warning that is no list": [{ ...grant, warnings: "memory" }, "warnings"],
      "a sandbox with a space": [{ ...grant, sandbox: "a b" }, "sandbox"],
      "generation 0": [{ ...grant, generation: 0 }, "generation"],
      "no timeline": [{ ...grant, timeline: undefined }, "timeline"],
    },
  },
  "pool.confirm.request": words({ version: 1, sandbox: "sb-1", generation: 1 }),
  "pool.confirm.answer": { good: { one: { sandbox: "sb-1" } }, bad: { nothing: [{}, "sandbox"] } },
  "pool.renew.request": {
    good: { plain: { run: "run-1" }, "for longer": { version: 1, run: "run-1", lease_ms: 120_000 } },
    bad: { "no run": [{}, "run"], "a lease of 0": [{ run: "r", lease_ms: 0 }, "lease_ms"] },
  },
  "pool.renew.answer": {
    good: { one: { run: "run-1", lease_ms: 60_000, sandboxes: 16 } },
    bad: { nothing: [{ run: "run-1", lease_ms: 60_000 }, "sandboxes"] },
  },
  "pool.release.request": {
    good: {
      sandbox: { sandbox: "sb-1", generation: 1 },
      lease: { version: 1, lease: ID2 },
      run: { run: "run-1", wait: false },
    },
    bad: {
      "nothing named": [{}, "body"],
      "two named": [{ run: "r", lease: ID2 }, "body"],
      "a lease that is no id": [{ lease: "x" }, "lease"],
    },
  },
  "pool.release.answer": {
    good: { one: { released: 1 }, "gone before": { released: 0, known: 1 } },
    bad: { nothing: [{}, "released"] },
  },
  "pool.list.request": {
    good: { all: {}, "a page of a run": { run: "r", after: "sb-1", limit: 1 } },
    bad: { "a limit of 0": [{ limit: 0 }, "limit"] },
  },
  "pool.list.answer": {
    good: {
      none: { sandboxes: [] },
      one: {
        sandboxes: [
          {
            sandbox: "sb-1",
            state: "leased",
            run: "r",
            lease: ID,
            generation: 1,
            image: "host",
            provider: "local",
            age_ms: 5,
            expires_in_ms: -3.5,
          },
        ],
        next: "sb-1",
      },
    },
    bad: {
      "a strange state": [
        { sandboxes: [{ sandbox: "a", state: "odd", generation: 1, image: "x", provider: "p", age_ms: 0 }] },
        "sandboxes.0.state",
      ],
    },
  },
  "pool.status.request": { good: { plain: {} }, bad: { "another version": [{ version: 0 }, "version"] } },
  "pool.status.answer": {
    good: {
      one: {
        pool: "p",
        uptime_ms: 1,
        draining: false,
        queued: 0,
        states: { leased: 3 },
        runs: 1,
        providers: [{ name: "local", sandboxes: 3 }],
      },
    },
    bad: { nothing: [{}, "pool"] },
  },
  "pool.drain.request": {
    good: { plain: {}, off: { on: false, release_all: true } },
    bad: { text: [{ on: "yes" }, "on"] },
  },
  "pool.drain.answer": {
    good: { one: { draining: true, remaining: 2 } },
    bad: { nothing: [{}, "draining"] },
  },
  "control.welcome": words({ version: 1, generation: 1, dead_man_ms: 35_000 }),
  "control.grant": words({ version: 1, lease: ID, generation: 2, dead_man_ms: 35_000 }),
  "control.renew": words({ version: 1, generation: 2, dead_man_ms: 65_000 }),
  "control.release": words({ version: 1, generation: 2, reason: "released" }),
  "control.credential": words({ version: 1, generation: 2, jwt: "e.y.J" }),
  "enrol.request": {
    good: { one: { version: 1, generation: 1, incarnation: LIFE, public_key: key } },
    bad: {
      "a seed in place of the key": [
        { version: 1, generation: 1, incarnation: LIFE, public_key: `S${key}` },
        "public_key",
      ],
      "a short incarnation": [
        { version: 1, generation: 1, incarnation: "x", public_key: key },
        "incarnation",
      ],
    },
  },
  "enrol.answer": { good: { one: { jwt: "e.y.J", dead_man_ms: 60_000 } }, bad: { nothing: [{}, "jwt"] } },
  "event.ready": words({ version: 1, generation: 1, incarnation: LIFE, boot_ms: 14.5 }),
  "event.pool": {
    good: { one: { what: "lost", at: "2026-01-02T03:04:05.678Z", sandbox: "sb-1", reason: "node_lost" } },
    bad: { "a strange event": [{ what: "party", at: "2026-01-02T03:04:05.678Z" }, "what"] },
  },
  bootstrap: {
    good: {
      one: bootstrap,
      "with a relay": { ...bootstrap, relay: "/run/nats.sock", env: { A: "1" }, cwd: "/" },
    },
    bad: {
      "no address": [{ ...bootstrap, urls: [] }, "urls"],
      "no time": [{ ...bootstrap, boot_timeout_ms: 0 }, "boot_timeout_ms"],
    },
  },
};
