// For tests of the daemon as a program: a pool's side of a boot, a daemon process, and a user's requests to it.
import {
  check,
  controlSubject,
  decode,
  ENROL_WILDCARD,
  EndFrame,
  EnrolRequest,
  encode,
  newSandboxId,
  newUuidV7,
  parse,
  parseAnswer,
  parseSubject,
  READY_WILDCARD,
  Ready,
  sandboxSubject,
} from "../broker/contract/index.ts";
import type { Link } from "../broker/link/link.ts";

/** What broker/server/testing.ts starts; given by the test, since the daemon's room may not import the server's. */
interface MeshServer {
  readonly url: string;
  readonly keys: {
    mintBootstrap(of: { tenant: string; sandbox: string; ttlMs: number }): { jwt: string; seed: string };
    mintSandbox(of: { tenant: string; sandbox: string; publicKey: string; ttlMs: number }): string;
  };
  pool(): Promise<Link>;
  user(tenant: string, user: string): Promise<Link>;
  close(): Promise<void>;
}

const TENANT = "acme";
const TTL_MS = 600_000;

export interface DaemonOptions {
  /** How it is started; the bootstrap is in the environment of whoever runs this. */
  argv: string[];
  env?: Record<string, string>;
  bootstrap?: Record<string, unknown>;
  deadManMs?: number;
  /** How long its credentials are good, and, where it has no dead man's time of its own, it hears nothing of the pool; ten
   * minutes by default. */
  lifeMs?: number;
}

export interface TestDaemon {
  sandbox: string;
  pid: number;
  bootMs: number;
  exited: Promise<number>;
  stderr: Promise<string>;
  exec(request: Record<string, unknown>): Promise<EndFrame>;
  /** A word of the pool. */
  control(verb: string, message: object): void;
  request(verb: string, message: object): Promise<Record<string, unknown>>;
}

export interface TestMesh extends AsyncDisposable {
  start(options: DaemonOptions): Promise<TestDaemon>;
  /** Starts one that is not expected to become ready. */
  spawn(options: DaemonOptions): { exited: Promise<number>; stderr: Promise<string> };
}

/** The server is closed with the mesh. */
export async function testMesh(server: MeshServer): Promise<TestMesh> {
  const pool = await server.pool();
  const user = await server.user(TENANT, "ann");
  const ready = new Map<string, (ready: Ready) => void>();
  const deadMan = new Map<string, number>();
  const life = new Map<string, number>();
  const running = new Set<Bun.Subprocess>();
  pool.subscribe(ENROL_WILDCARD, (message) => {
    const subject = parseSubject(message.subject);
    if (subject?.kind !== "enrol") return;
    const { tenant, sandbox } = subject;
    const { public_key } = parse(EnrolRequest, message.data);
    const ttlMs = life.get(sandbox) ?? TTL_MS;
    const jwt = server.keys.mintSandbox({ tenant, sandbox, publicKey: public_key, ttlMs });
    message.respond(encode({ jwt, dead_man_ms: deadMan.get(sandbox) ?? ttlMs }));
  });
  pool.subscribe(READY_WILDCARD, (message) => {
    const subject = parseSubject(message.subject);
    if (subject?.kind === "event" && subject.scope === "sandbox")
      ready.get(subject.of)?.(check(Ready, decode(message.data)));
  });
  await pool.flush();

  const launch = ({ argv, env, bootstrap, deadManMs, lifeMs }: DaemonOptions) => {
    const sandbox = newSandboxId();
    if (lifeMs !== undefined) life.set(sandbox, lifeMs);
    if (deadManMs !== undefined) deadMan.set(sandbox, deadManMs);
    const credentials = server.keys.mintBootstrap({ tenant: TENANT, sandbox, ttlMs: TTL_MS });
    const text = JSON.stringify({
      version: 1,
      urls: [server.url],
      tenant: TENANT,
      sandbox,
      generation: 1,
      ...credentials,
      boot_timeout_ms: 20_000,
      ...bootstrap,
    });
    const child = Bun.spawn(argv, {
      env: { PATH: process.env.PATH ?? "", ...env, SANDMESH_BOOTSTRAP: text },
      stdin: "ignore",
      stdout: "ignore",
      stderr: "pipe",
      cwd: "/",
    });
    running.add(child);
    void child.exited.then(() => running.delete(child));
    const stderr = child.stderr.text();
    return { sandbox, child, stderr };
  };

  return {
    spawn(options) {
      const { child, stderr } = launch(options);
      return { exited: child.exited, stderr };
    },
    async start(options) {
      const announced = Promise.withResolvers<Ready>();
      const { sandbox, child, stderr } = launch(options);
      ready.set(sandbox, announced.resolve);
      const gone = child.exited.then(async (code) => {
        throw new Error(`the daemon ended with ${code} before it was ready: ${await stderr}`);
      });
      gone.catch(() => {});
      const { boot_ms } = await Promise.race([announced.promise, gone]);
      pool.publish(
        controlSubject(TENANT, sandbox, "welcome"),
        encode({ version: 1, generation: 1, dead_man_ms: options.deadManMs ?? options.lifeMs ?? TTL_MS }),
      );
      return daemonOf(user, pool, { sandbox, pid: child.pid, bootMs: boot_ms, exited: child.exited, stderr });
    },
    async [Symbol.asyncDispose]() {
      const children = [...running];
      for (const child of children) child.kill("SIGKILL");
      await Promise.all(children.map((child) => child.exited));
      await server.close();
    },
  };
}

function daemonOf(
  user: Link,
  pool: Link,
  facts: Pick<TestDaemon, "sandbox" | "pid" | "bootMs" | "exited" | "stderr">,
): TestDaemon {
  const { sandbox } = facts;
  const ask = (verb: string, message: object) =>
    user.request(sandbox, sandboxSubject(TENANT, sandbox, verb), encode(message), { timeoutMs: 30_000 });
  return {
    ...facts,
    control: (verb, message) => pool.publish(controlSubject(TENANT, sandbox, verb), encode(message)),
    request: async (verb, message) => decode((await ask(verb, { version: 1, ...message })).data),
    exec: async (request) =>
      parseAnswer(EndFrame, (await ask("exec", { version: 1, id: newUuidV7(), ...request })).data),
  };
}

/** The command that runs the launcher of the daemon's `folder` as PID 1 of its own pid and mount namespace in `root`,
 * where the folder is mounted read-only. `before` is shell, run last outside, with the root's path in $R. `first` are
 * words in front of the launcher: another first process, that starts it. `user` is chroot's `--userspec`. `ground` is shell, run
 * first of all, that puts another root in the place of $R. */
export const daemonInRoot = (
  folder: string,
  root: string,
  before = "",
  { first = "", user = "0:0", ground = "" } = {},
): string[] => [
  "unshare",
  ...["--mount", "--pid", "--fork", "--kill-child", "--propagation", "private"],
  "sh",
  "-c",
  `set -e; R="$1"; ${ground}
   mount --bind "$R" "$R"; mount -t proc proc "$R/proc"
   mount --bind "$2" "$R/sandmesh"; mount -o remount,bind,ro "$R/sandmesh"
   for d in null urandom zero; do touch "$R/dev/$d"; mount --bind "/dev/$d" "$R/dev/$d"; done
   ${before}
   exec chroot --userspec=${user} "$R" ${first} /sandmesh/sandmesh-agent`,
  "sh",
  root,
  folder,
];
