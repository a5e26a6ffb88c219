// The launcher's client: one warm Python process (launcher.py) that forks a supervisor for each sandbox.
import { join } from "node:path";
import type { Subprocess } from "bun";
import * as v from "valibot";
import { type Bootstrap, ProviderError } from "../../../../broker/contract/index.ts";
import { Identity, REMOVING, readRecord } from "../layout.ts";
import { isAlive } from "../processes.ts";
import { findPython } from "../python.ts";

/** What launcher.py and inside.py are told. Paths are the machine's unless said otherwise. */
export interface Plan {
  sandbox: string;
  /** Source of the sandbox's mounts, by which they are found again. */
  mark: string;
  folder: string;
  exits: string;
  max_life_ms: number;
  /** In a user namespace of its own, as an unprivileged user's root. */
  userns: boolean;
  /** Overlay's lower folders, topmost first. */
  lowers: string[];
  /** Of a folder that is the image: of what was looked at (places.ts). */
  image_identity: string | null;
  /** One overlay for each top-level folder. */
  split: boolean;
  /** Give /tmp and /run new, empty ones. */
  fresh: boolean;
  network: "none" | "host";
  /** Version 1: files that the first process writes itself to. */
  cgroup_tasks: string[];
  /** Version 2: the folder that the first process is born in. */
  cgroup_folder: string | null;
  /** Version 2: the folder in which the daemon may make groups for commands; it is handed over as a descriptor. */
  cgroup_commands: string | null;
  /** Counts the kernel's kills for memory: memory.events, or version 1's memory.oom_control. */
  cgroup_oom: string | null;
  /** Own cgroup folder → where it is seen inside. */
  cgroup_views: Record<string, string>;
  /** RLIMIT_NPROC, soft and hard. */
  nproc: number | null;
  /** The writable layer lies in a file system of this size. */
  disk_bytes: number | null;
  shm_bytes: number;
  /** Name below /.sandmesh → folder, read-only. */
  own: Record<string, string>;
  /** `identity`: of the source that was looked at; `field`: of the spec, where source and target are named. */
  volumes: { source: string; identity: string; target: string; field: string }[];
  /** Of file systems; nothing of another is shown in a volume. */
  data_types: string[];
  /** Covered by something empty, inside. */
  hidden: string[];
  /** Files of /etc, by name. */
  etc: Record<string, string>;
  /** Made inside where missing. */
  make_folders: { path: string; kind: "image" | "request"; field: string }[];
  user: string | null;
  /** The daemon's, and its environment beside SANDMESH_BOOTSTRAP; paths as seen inside. */
  argv: string[];
  env: Record<string, string>;
  bootstrap: Bootstrap;
  entrypoint: { argv: string[]; env: Record<string, string>; cwd: string } | null;
}

const LaunchError = v.object({
  kind: v.picklist(["user", "image", "request", "system", "fault"]),
  errno: v.number(),
  message: v.string(),
  field: v.nullish(v.string()),
});
export type LaunchError = v.InferOutput<typeof LaunchError>;
const Answer = v.union([
  v.object({ id: v.number(), error: LaunchError }),
  v.object({ id: v.number(), ...Identity.entries }),
]);
type Answer = v.InferOutput<typeof Answer>;

/** Its first line: it watches over the supervisors that are there. */
const READY = "ready";
/** Ten times what a launch takes, so that as a rule nobody looks. */
const LOOK_MS = 250;
/** Until a launcher that ended is started anew, for the sandboxes that are there. */
const AGAIN_MS = 500;
/** Above launcher.py's own LAUNCH_DEADLINE_S. */
const ANSWER_DEADLINE_MS = 25_000;
const START_DEADLINE_MS = 10_000;
/** With its stdin it ends at once, unless it stands still. */
const END_DEADLINE_MS = 5_000;

type Running = Subprocess<"pipe", "pipe", "inherit">;

export class Launcher {
  readonly #stateDir: string;
  #process: Promise<Running> | undefined;
  #nextId = 1;
  #closing = false;
  /** When it, or a supervisor that it forked, last said something; by performance.now. */
  #heardAt = 0;
  readonly #waiting = new Map<number, (answer: Answer | Error) => void>();

  constructor(stateDir: string) {
    this.#stateDir = stateDir;
  }

  /** Starts it, where it does not run: it tells which of the sandboxes that are there lose their supervisor. */
  async start(): Promise<void> {
    this.#process ??= this.#start();
    await this.#process;
  }

  /** Resolves when the daemon's exec has succeeded (its pid as the machine sees it), or with why it has not; rejects
   * with ProviderError where the launcher itself failed, or the supervisor was killed before it could say anything. */
  async launch(plan: Plan): Promise<Identity | LaunchError> {
    this.#process ??= this.#start();
    const running = await this.#process;
    const id = this.#nextId++;
    const answered = new Promise<Answer | Error>((resolve) => this.#waiting.set(id, resolve));
    try {
      running.stdin.write(`${JSON.stringify({ id, ...plan })}\n`);
      running.stdin.flush();
    } catch {
      // It was killed, which its stdout has not told yet.
      this.#settle(id, launcherDied());
    }
    const watch = this.#watchSupervisor(id, plan, running);
    const answer = await answered;
    clearInterval(watch);
    if (answer instanceof Error) throw answer;
    return "error" in answer ? answer.error : { pid: answer.pid, start: answer.start };
  }

  /** A supervisor that is killed answers nothing, and the launcher, which lets the kernel reap them, does not hear of
   * it. One that answers and ends may be seen dead before its answer is read: so it is looked at twice. And either may
   * stand still. */
  #watchSupervisor(id: number, { sandbox, folder }: Plan, launcher: Running): ReturnType<typeof setInterval> {
    const begun = performance.now();
    let dead = 0;
    const look = async (): Promise<void> => {
      const supervisor =
        (await readRecord(Identity, join(folder, "supervisor"))) ??
        (await readRecord(Identity, join(folder + REMOVING, "supervisor")));
      if (supervisor !== undefined && !isAlive(supervisor)) dead++;
      if (dead >= 2)
        return this.#settle(id, new ProviderError("its supervisor ended before it was started", { sandbox }));
      const now = performance.now();
      if (now - begun < ANSWER_DEADLINE_MS) return;
      const who = supervisor === undefined ? "the local provider's launcher" : "its supervisor";
      const message = `${who} did not answer within ${ANSWER_DEADLINE_MS / 1000} s`;
      this.#settle(id, new ProviderError(message, { sandbox, reason: "launch_unanswered" }));
      // It stands still: another is started. A burst that waits in its queue is no reason.
      if (supervisor === undefined && now - this.#heardAt > ANSWER_DEADLINE_MS) launcher.kill("SIGKILL");
    };
    return setInterval(() => void look(), LOOK_MS);
  }

  async #start(): Promise<Running> {
    const python = await findPython();
    // The cache of compiled modules goes to the state folder: the program's own may be read-only.
    const cache = `pycache_prefix=${join(this.#stateDir, "pycache")}`;
    const child = Bun.spawn(
      [python, "-s", "-S", "-E", "-X", cache, join(import.meta.dir, "launcher.py"), this.#stateDir],
      { stdin: "pipe", stdout: "pipe", stderr: "inherit", env: { PATH: process.env.PATH ?? "" }, cwd: "/" },
    );
    const ready = Promise.withResolvers<Running>();
    const late = setTimeout(() => child.kill("SIGKILL"), START_DEADLINE_MS);
    this.#read(child, () => ready.resolve(child))
      .catch(() => undefined)
      .finally(() => ready.reject(this.#lost(child)));
    return ready.promise.finally(() => clearTimeout(late));
  }

  async #read(child: Running, ready: () => void): Promise<void> {
    const decoder = new TextDecoder();
    let rest = "";
    for await (const chunk of child.stdout) {
      this.#heardAt = performance.now();
      const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (line === READY) {
          ready();
          continue;
        }
        const answer = v.parse(Answer, JSON.parse(line));
        this.#settle(answer.id, answer);
      }
    }
  }

  #settle(id: number, answer: Answer | Error): void {
    this.#waiting.get(id)?.(answer);
    this.#waiting.delete(id);
  }

  /** Another is started. Supervisors of before go on by themselves. */
  #lost(child: Running): ProviderError {
    child.kill("SIGKILL");
    this.#process = undefined;
    setTimeout(() => {
      if (!this.#closing) this.start().catch(() => undefined);
    }, AGAIN_MS).unref();
    const error = launcherDied();
    for (const settle of this.#waiting.values()) settle(error);
    this.#waiting.clear();
    return error;
  }

  async close(): Promise<void> {
    this.#closing = true;
    const running = await this.#process?.catch(() => undefined);
    if (running === undefined) return;
    running.stdin.end();
    const late = setTimeout(() => running.kill("SIGKILL"), END_DEADLINE_MS);
    await running.exited;
    clearTimeout(late);
  }
}

const launcherDied = (): ProviderError =>
  new ProviderError("the local provider's launcher ended", { reason: "launcher_died" });
