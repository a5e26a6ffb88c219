// The floors of the burst. Plain: N pods by the fastest creator there is, until all run. Wired: the same, with the same
// simulated daemons, until all have said that they are ready; of the pool nothing but the answer to their enrolment. Used:
// and then one client runs a first no-op in each, as ours do. A second time on the same processes, which are warm then.
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  controlSubject,
  ENROL_WILDCARD,
  EnrolRequest,
  encode,
  newSandboxId,
  parse,
  parseSubject,
  READY_WILDCARD,
  randomName,
} from "../../broker/contract/index.ts";
import { formatCreds } from "../../broker/credentials/index.ts";
import { connect } from "../../broker/link/connect.ts";
import { type Server, startServer } from "../../broker/server/index.ts";
import { connect as connectUser, type Mesh } from "../../sdk/typescript/mod.ts";
import { percentile } from "./bench.ts";
import { type Cpu, meter } from "./burst-account.ts";
import { type Kubelets, startKubelets } from "./burst-kubelets-start.ts";
import { openApi, PODS, removePods, watchPods } from "./burst-pods.ts";
import { inTime } from "./burst-wait.ts";

export interface Floor {
  halfS: number;
  allS: number;
  cpu: Cpu;
}

export interface WiredFloor extends Floor {
  /** Until each had answered a first no-op. */
  used: { allS: number; cpu: Cpu };
}

const TENANT = "default";
const LONG_MS = 3600_000;
/** A pod a tenth of a second, and some for a machine that does other things: then it hangs. */
const patienceMs = (n: number): number => 60_000 + n * 100;

/** What a pod has whose program is the daemon: without it there would be none to answer. */
const MOUNTED = {
  volumes: [{ name: "daemon", image: { reference: "simulated", pullPolicy: "Never" } }],
  mounts: [{ name: "daemon", mountPath: "/daemon", readOnly: true }],
};

const podOf = (name: string, labels: Record<string, string>, bootstrap: object | undefined) => ({
  apiVersion: "v1",
  kind: "Pod",
  metadata: { name, labels },
  spec: {
    nodeSelector: { type: "kwok" },
    tolerations: [{ key: "kwok.x-k8s.io/node", operator: "Exists" }],
    automountServiceAccountToken: false,
    enableServiceLinks: false,
    restartPolicy: "Never",
    terminationGracePeriodSeconds: 1,
    ...(bootstrap === undefined ? {} : { volumes: MOUNTED.volumes }),
    containers: [
      {
        name: "sandbox",
        image: "simulated",
        command: ["/bin/true"],
        ...(bootstrap === undefined
          ? {}
          : {
              env: [{ name: "SANDMESH_BOOTSTRAP", value: JSON.stringify(bootstrap) }],
              volumeMounts: MOUNTED.mounts,
            }),
      },
    ],
  },
});

/** Counts each name once, and when. */
class Arrivals {
  readonly #seconds = new Map<string, number>();
  readonly #all = Promise.withResolvers<void>();
  readonly #n: number;
  began = performance.now();

  constructor(n: number) {
    this.#n = n;
  }

  add(name: string): void {
    if (this.#seconds.has(name)) return;
    this.#seconds.set(name, (performance.now() - this.began) / 1000);
    if (this.#seconds.size === this.#n) this.#all.resolve();
  }

  async all(what: string): Promise<Omit<Floor, "cpu">> {
    const far = () => `(${this.#seconds.size} of ${this.#n} there)`;
    await inTime(what, patienceMs(this.#n), this.#all.promise, far);
    const seconds = [...this.#seconds.values()];
    return { halfS: percentile(seconds, 0.5), allS: Math.max(...seconds) };
  }
}

async function createAll(api: ReturnType<typeof openApi>, pods: readonly object[]): Promise<void> {
  const signal = AbortSignal.timeout(patienceMs(pods.length));
  const one = async (body: object): Promise<void> => {
    const { status, body: said } = await api.request({ method: "POST", path: PODS, body }, signal, true);
    if (status >= 300) throw new Error(`a plain pod was answered with ${status}: ${JSON.stringify(said)}`);
  };
  await Promise.all(pods.map(one));
}

/** Creates `n` plain pods, waits until all run, removes them. */
export async function plainBurst(n: number): Promise<Floor> {
  const api = openApi();
  const label = { "sandmesh.dev/burst": randomName(8) };
  const selector = `sandmesh.dev/burst=${label["sandmesh.dev/burst"]}`;
  const running = new Arrivals(n);
  const watch = await watchPods(api, selector, (type, { metadata, status }) => {
    if (type === "seen" && status.phase === "Running") running.add(metadata.name);
  });
  try {
    const spent = meter({ creator: [process.pid] });
    running.began = performance.now();
    const names = Array.from({ length: n }, (_, i) => `plain-${label["sandmesh.dev/burst"]}-${i}`);
    await createAll(
      api,
      names.map((name) => podOf(name, label, undefined)),
    );
    const floor = await Promise.race([running.all("plain pods to run"), watch.failed]);
    return { ...floor, cpu: spent() };
  } finally {
    await watch.stop();
    await removePods(api, selector, patienceMs(n));
    api.close();
  }
}

/** Answers enrolments as the pool does, and says a word to each daemon that is ready. */
async function answerDaemons(server: Server, ready: (sandbox: string) => void) {
  const link = await connect({ urls: [server.url], credentials: server.keys.mintPool() });
  link.subscribe(ENROL_WILDCARD, (message) => {
    const subject = parseSubject(message.subject);
    if (subject?.kind !== "enrol" || message.reply === undefined) return;
    const { tenant, sandbox } = subject;
    const { public_key: publicKey } = parse(EnrolRequest, message.data);
    const jwt = server.keys.mintSandbox({ tenant, sandbox, publicKey, ttlMs: LONG_MS });
    message.respond(encode({ jwt, dead_man_ms: LONG_MS }));
  });
  link.subscribe(READY_WILDCARD, ({ subject }) => {
    const parsed = parseSubject(subject);
    if (parsed?.kind !== "event" || parsed.scope !== "sandbox") return;
    ready(parsed.of);
    const word = { version: 1, generation: 1, dead_man_ms: LONG_MS };
    link.publish(controlSubject(parsed.tenant, parsed.of, "renew"), encode(word));
  });
  await link.flush();
  return link;
}

const bootstrapOf = (server: Server, sandbox: string) => ({
  version: 1,
  urls: [server.url],
  tenant: TENANT,
  sandbox,
  generation: 1,
  ...server.keys.mintBootstrap({ tenant: TENANT, sandbox, ttlMs: LONG_MS }),
  boot_timeout_ms: LONG_MS,
});

interface Wired {
  api: ReturnType<typeof openApi>;
  mesh: string;
  server: Server;
  kubelets: Kubelets;
  user: Mesh;
  /** What becomes of each daemon's word that it is ready. */
  heed: { ready(sandbox: string): void };
}

/** Creates `n` plain pods whose daemons are the burst's, waits until all are ready, uses them, removes them. */
async function wiredOnce(n: number, wired: Wired): Promise<WiredFloor> {
  const { api, mesh, server, kubelets, user, heed } = wired;
  const ready = new Arrivals(n);
  heed.ready = (sandbox) => ready.add(sandbox);
  const names = Array.from({ length: n }, newSandboxId);
  const pods = names.map((name) => podOf(name, { "sandmesh.dev/mesh": mesh }, bootstrapOf(server, name)));
  const spent = meter({ creator: [process.pid], nats: [server.pid], daemons: [kubelets.pid] });
  ready.began = performance.now();
  try {
    await createAll(api, pods);
    const floor = await Promise.race([ready.all("plain pods' daemons to be ready"), kubelets.failed]);
    const cpu = spent();
    await Promise.all(names.map((name) => user.sandbox(name).exec(["true"], { check: true })));
    const usedS = (performance.now() - ready.began) / 1000;
    return { ...floor, cpu, used: { allS: usedS, cpu: spent() } };
  } finally {
    await removePods(api, `sandmesh.dev/mesh=${mesh}`, patienceMs(n));
  }
}

/** The first burst, and one more on the same processes unless it is `once`. */
export async function wiredBursts(n: number, once: boolean): Promise<[WiredFloor, WiredFloor?]> {
  const api = openApi();
  const mesh = `wired-${randomName(6)}`;
  const folder = await mkdtemp(join(tmpdir(), "sandmesh-wired-"));
  const server = await startServer({ stateDir: join(folder, "nats") });
  const heed: Wired["heed"] = { ready: () => undefined };
  const link = await answerDaemons(server, (sandbox) => heed.ready(sandbox));
  const credentials = join(folder, "me.creds");
  await writeFile(credentials, formatCreds(server.keys.mintUser({ tenant: TENANT, user: "me" })), {
    mode: 0o600,
  });
  const user = await connectUser({ url: server.url, credentials, handleSignals: false });
  const kubelets = await startKubelets(mesh);
  try {
    const wired = { api, mesh, server, kubelets, user, heed };
    const first = await wiredOnce(n, wired);
    return once ? [first] : [first, await wiredOnce(n, wired)];
  } finally {
    await kubelets.stop();
    await user.close();
    await link.close();
    await server.stop();
    await rm(folder, { recursive: true, force: true });
    api.close();
  }
}
