// The provider `local`: sandboxes of namespaces, overlayfs and cgroups on this machine. No engine, no image registry.
import { mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import {
  ID_PATTERN,
  InvalidRequestError,
  ProviderError,
  randomName,
  type SandboxSpec,
} from "../../../broker/contract/index.ts";
import { whenAborted } from "../../../broker/link/on-abort.ts";
import { canceled, unlessAborted } from "../canceled.ts";
import type { Created, CreateRequest, Listed, Provider } from "../provider.ts";
import { Cgroups } from "./cgroups.ts";
import { ExitWatch, reasonOf } from "./exits.ts";
import { DAEMON_PROGRAM, needDaemon, needRoom, providerFault } from "./faults.ts";
import { Images } from "./image/image.ts";
import { launchError } from "./launch/error.ts";
import { Launcher } from "./launch/launcher.ts";
import { INSIDE, Layout, type Meta, namesIn, REMOVING } from "./layout.ts";
import { type DefaultLimits, Limits } from "./limits.ts";
import { makePlan } from "./plan.ts";
import { endLaunchers, findMarked, killAll } from "./processes.ts";
import { parseAddress } from "./relay/address.ts";
import { RelayClient } from "./relay/relay.ts";
import { removeSandbox, removeTree } from "./removal.ts";
import { Secrets } from "./secrets.ts";
import { notIsolated, refuseUnsupported } from "./spec.ts";
import { standingOf } from "./standing.ts";

export interface Log {
  info(fields: object, message: string): void;
  warn(fields: object, message: string): void;
}

export interface LocalOptions {
  /** Absolute. Holds sandboxes and unpacked layers; on a file system that overlayfs can write to. */
  stateDir: string;
  /** The built daemon; mounted read-only at /.sandmesh/daemon. */
  daemonDir: string;
  /** The daemon's command as seen inside. */
  daemonArgv?: string[];
  /** host:port of NATS, as this machine reaches it. */
  natsUrl: string;
  /** Folders of the machine that no sandbox shall see, as image, as volume or in image `host`, beside the state folder. */
  hide?: readonly string[];
  /** The limits of a sandbox that asks for none; left out: by the machine (limits.ts). */
  defaults?: Partial<DefaultLimits>;
  name?: string;
  log: Log;
}

export interface LocalProvider extends Provider {
  /** The mesh goes down: removes all sandboxes, the relay and what the provider itself had running. Layers stay. */
  end(signal: AbortSignal): Promise<void>;
}

const END_DEADLINE_MS = 10_000;
/** Each runs rm(1) and looks at /proc until its processes have ended: more wait for the same disk and processors. */
const MAX_REMOVING = 64;

export function createLocalProvider(options: LocalOptions): LocalProvider {
  return new Local(options);
}

class Local implements LocalProvider {
  readonly name: string;
  readonly maxRemoving = MAX_REMOVING;
  readonly #options: LocalOptions;
  readonly #layout: Layout;
  readonly #cgroups: Cgroups;
  readonly #secrets: Secrets;
  readonly #images: Images;
  readonly #launcher: Launcher;
  readonly #relay: RelayClient;
  readonly #exits: ExitWatch;
  readonly #adopted: Promise<void>;
  readonly #root = process.getuid?.() === 0;
  readonly #limits: Limits;
  /** Creates under way; `stop` ends them early. */
  readonly #creating = new Map<string, { done: Promise<Created>; stop: AbortController }>();
  readonly #removing = new Map<string, Promise<void>>();

  constructor(options: LocalOptions) {
    this.#options = options;
    this.name = options.name ?? "local";
    const { host, port } = parseAddress(options.natsUrl);
    const layout = new Layout(options.stateDir);
    this.#layout = layout;
    try {
      layout.make();
    } catch (error) {
      throw providerFault(error, `${layout.stateDir} cannot be the provider's folder`);
    }
    this.#secrets = new Secrets([layout.stateDir, ...(options.hide ?? [])]);
    this.#cgroups = new Cgroups(layout.mark);
    this.#limits = new Limits(this.#cgroups.enforced, this.#root, options.defaults);
    this.#images = new Images(this.#secrets, layout.layers);
    this.#launcher = new Launcher(layout.stateDir);
    const onRestart = () => options.log.warn({}, "the relay had ended and was started again");
    const onUnanswered = () => options.log.warn({}, "the relay does not answer and is killed");
    const { relay, stateDir } = layout;
    this.#relay = new RelayClient({ folder: relay, stateDir, host, port, onRestart, onUnanswered });
    this.#exits = new ExitWatch(layout, (sandbox) => this.#removing.has(sandbox));
    this.#adopted = this.#adopt().catch((error: unknown) => {
      options.log.warn({ error }, "what an earlier pool left could not be taken up");
    });
  }

  /** Sandboxes of a pool before this one need the relay, which may have ended with it. */
  async #adopt(): Promise<void> {
    // The launcher of a pool that was killed goes on with what it had been told, and would make beside us.
    await endLaunchers(this.#layout.stateDir);
    const names = await namesIn(this.#layout.sandboxes);
    // What a killed pool had begun to write: records, and layers that were being unpacked.
    for (const folder of [this.#layout.sandboxes, this.#layout.layers]) {
      for (const name of (await namesIn(folder)).filter((n) => n.startsWith("."))) {
        await removeTree(join(folder, name));
      }
    }
    if (names.every((name) => name.startsWith("."))) await this.#images.removeEarlier();
    if (!names.some((name) => ID_PATTERN.test(name))) return;
    await Promise.all([this.#relay.start(), this.#launcher.start()]);
  }

  async validate(spec: SandboxSpec): Promise<void> {
    refuseUnsupported(spec, this.#secrets);
    await this.#images.check(spec.image);
  }

  async create(request: CreateRequest, signal: AbortSignal): Promise<Created> {
    const { sandbox } = request;
    if (!ID_PATTERN.test(sandbox)) {
      throw new InvalidRequestError(`${JSON.stringify(sandbox)} is no valid sandbox id`, {
        field: "sandbox",
      });
    }
    let creating = this.#creating.get(sandbox);
    if (creating === undefined) {
      const stop = new AbortController();
      const done = this.#create(request, stop.signal).finally(() => this.#creating.delete(sandbox));
      creating = { done, stop };
      this.#creating.set(sandbox, creating);
    }
    const { stop } = creating;
    const unhear = whenAborted(signal, () => stop.abort());
    try {
      return await creating.done;
    } catch (error) {
      throw providerFault(error, `sandbox ${sandbox} could not be started`, sandbox);
    } finally {
      unhear();
    }
  }

  async #create(request: CreateRequest, signal: AbortSignal): Promise<Created> {
    const { sandbox, spec } = request;
    refuseUnsupported(spec, this.#secrets);
    await this.#adopted;
    await this.#removing.get(sandbox);
    const existing = await this.#existing(sandbox);
    if (existing !== undefined) return existing;
    const image = await unlessAborted(this.#images.resolve(spec.image), signal, sandbox);
    const limited = this.#limits.of(spec);
    await needRoom(this.#layout.stateDir, sandbox);
    const { daemonDir, daemonArgv } = this.#options;
    if (daemonArgv === undefined) needDaemon(daemonDir, `sandbox ${sandbox} could not be started`, sandbox);
    const uid = this.#begin(request);
    try {
      if (spec.network !== "host") await this.#relay.add(sandbox);
      const plan = makePlan({
        layout: this.#layout,
        request,
        image,
        cgroups: this.#cgroups.make(sandbox, limited),
        nproc: this.#limits.nproc(limited),
        diskBytes: this.#limits.diskBytes(limited),
        shmBytes: this.#limits.shmBytes(limited),
        root: this.#root,
        daemonDir,
        daemonArgv: daemonArgv ?? [`${INSIDE}/daemon/${DAEMON_PROGRAM}`],
        secrets: this.#secrets,
        isolation: this.notIsolated(spec),
      });
      const launched = await this.#launcher.launch(plan);
      if ("kind" in launched) throw launchError(sandbox, spec, launched);
      if (signal.aborted) throw canceled(sandbox);
      this.#exits.tell({ type: "running", sandbox, uid });
      return { uid };
    } catch (error) {
      await this.#remove(sandbox);
      throw error;
    }
  }

  /** The folder with its record in one step, so that there is never a folder that nothing is known of. */
  #begin({ sandbox, tenant, run, spec }: CreateRequest): string {
    const uid = randomName(16);
    const fresh = join(this.#layout.sandboxes, `.${sandbox}-${uid}`);
    const meta: Meta = { sandbox, tenant, run, uid, image: spec.image };
    mkdirSync(fresh, { mode: 0o700 });
    writeFileSync(join(fresh, "meta.json"), JSON.stringify(meta));
    try {
      renameSync(fresh, this.#layout.folder(sandbox));
    } catch (cause) {
      rmSync(fresh, { recursive: true, force: true });
      throw new ProviderError(`sandbox ${sandbox} is being made by another process`, { sandbox, cause });
    }
    return uid;
  }

  /** What an earlier create of that name made, this pool's or another's. */
  async #existing(sandbox: string): Promise<Created | undefined> {
    const standing = await standingOf(this.#layout, sandbox, sandbox);
    if (standing === undefined) return undefined;
    const { meta, phase } = standing;
    if (phase === "unfinished") {
      await this.#remove(sandbox);
      return undefined;
    }
    if (meta !== undefined && phase !== "ended") return { uid: meta.uid };
    throw new ProviderError(
      `sandbox ${sandbox} was made before and has ended; its name cannot be used again`,
      {
        sandbox,
        reason: "ended",
      },
    );
  }

  async remove(sandbox: string, uid: string | undefined, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (!ID_PATTERN.test(sandbox)) return;
    const creating = this.#creating.get(sandbox);
    if (creating !== undefined) {
      creating.stop.abort();
      await creating.done.catch(() => undefined);
    }
    if (uid !== undefined) {
      const meta = (await standingOf(this.#layout, sandbox, sandbox))?.meta;
      if (meta !== undefined && meta.uid !== uid) return;
    }
    await this.#remove(sandbox);
  }

  #remove(sandbox: string): Promise<void> {
    let removing = this.#removing.get(sandbox);
    if (removing === undefined) {
      removing = removeSandbox({ layout: this.#layout, cgroups: this.#cgroups, relay: this.#relay }, sandbox);
      removing = removing
        .catch((error: unknown) => {
          throw providerFault(error, `sandbox ${sandbox} could not be removed`, sandbox);
        })
        .finally(() => this.#removing.delete(sandbox));
      this.#removing.set(sandbox, removing);
    }
    return removing;
  }

  async list(signal: AbortSignal): Promise<Listed[]> {
    signal.throwIfAborted();
    await this.#adopted;
    // The groups first: one that is being made has its folder before its group.
    const groups = await this.#cgroups.names();
    const names = await namesIn(this.#layout.sandboxes);
    const known = new Set(names.map((name) => name.replace(REMOVING, "")));
    const listed = await Promise.all(
      names.filter((n) => !n.startsWith(".")).map((name) => this.#listed(name)),
    );
    // A group without a folder: a removal that was cut off after its last file.
    for (const sandbox of new Set(groups.filter((name) => !known.has(name)))) {
      listed.push({ sandbox, tenant: "", uid: "", phase: "failed", reason: "removing" });
    }
    return listed.filter((entry) => entry !== undefined);
  }

  async #listed(name: string): Promise<Listed | undefined> {
    const sandbox = name.replace(REMOVING, "");
    const standing = await standingOf(this.#layout, sandbox, name);
    if (standing === undefined) return undefined;
    const { meta, phase, exit } = standing;
    const base = { sandbox, tenant: meta?.tenant ?? "", uid: meta?.uid ?? "" };
    if (name.endsWith(REMOVING)) return { ...base, phase: "failed", reason: "removing" };
    if (this.#creating.has(sandbox)) return { ...base, phase: "starting" };
    if (phase !== "ended") return { ...base, phase };
    const reason = exit === undefined ? "exited" : reasonOf(exit);
    return { ...base, phase: "failed", reason };
  }

  watch(handle: Parameters<Provider["watch"]>[0]): () => void {
    return this.#exits.watch(handle);
  }

  notIsolated(spec: SandboxSpec): string[] {
    const { enforced, disk } = this.#limits;
    return notIsolated(this.#limits.of(spec), { root: this.#root, enforced, disk });
  }

  warnings(spec: SandboxSpec): string[] {
    return this.#limits.warnings(spec);
  }

  async close(): Promise<void> {
    await this.#adopted;
    for (const { stop } of this.#creating.values()) stop.abort();
    await Promise.allSettled([...this.#creating.values()].map(({ done }) => done));
    this.#exits.close();
    await Promise.all([this.#launcher.close(), this.#relay.close()]);
  }

  async end(signal: AbortSignal): Promise<void> {
    await this.#adopted;
    const { stateDir, mark } = this.#layout;
    const ids = new Set([
      ...this.#creating.keys(),
      // Also those whose files someone has removed.
      ...(await findMarked(mark)).sandboxes,
      ...(await this.list(signal)).map(({ sandbox }) => sandbox),
    ]);
    await Promise.all([...ids].map((sandbox) => this.remove(sandbox, undefined, signal)));
    this.#exits.close();
    await Promise.all([this.#launcher.close(), this.#relay.end()]);
    // A relay whose socket was removed, and supervisors of which no record is left.
    await killAll("processes", async () => (await findMarked(mark, stateDir)).pids, END_DEADLINE_MS);
    this.#cgroups.close();
    for (const folder of [this.#layout.sandboxes, this.#layout.exits, this.#layout.relay]) {
      await rm(folder, { recursive: true, force: true }).catch((error: unknown) => {
        throw providerFault(error, `${folder} could not be removed`);
      });
    }
  }
}
