// The pool's side of the relay: starts it, or finds the one that a pool before left running, and names sandboxes to it.
import { rmSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { ProviderError } from "../../../../broker/contract/index.ts";
import { endRelays } from "../processes.ts";
import { Control } from "./control.ts";
import { CONTROL_SOCKET } from "./relay-process.ts";

const START_DEADLINE_MS = 10_000;

export interface RelayOptions {
  folder: string;
  stateDir: string;
  host: string;
  port: number;
  /** Called when the relay died under us, after another was started. */
  onRestart: () => void;
  /** Called when it does not answer, and before it is killed for that. */
  onUnanswered: () => void;
}

export class RelayClient {
  readonly #options: RelayOptions;
  #control: Promise<Control> | undefined;
  #closing = false;

  constructor(options: RelayOptions) {
    this.#options = options;
  }

  /** Resolves when the sandbox's socket listens. Throws ProviderError. */
  async add(sandbox: string): Promise<void> {
    await this.#say(`add ${sandbox}`);
  }

  /** Closes the sandbox's connections and removes its folder, also where no relay runs. */
  async remove(sandbox: string): Promise<void> {
    if (this.#control !== undefined) await this.#say(`remove ${sandbox}`).catch(() => undefined);
    await rm(join(this.#options.folder, sandbox), { recursive: true, force: true });
  }

  /** Connects to the relay, which starts it where none runs. */
  async start(): Promise<void> {
    await this.#connected();
  }

  /** Lets go of the relay, which serves on. */
  async close(): Promise<void> {
    this.#closing = true;
    const control = await this.#control?.catch(() => undefined);
    control?.close();
  }

  /** Ends the relay, if one runs. */
  async end(): Promise<void> {
    this.#closing = true;
    const control = await (this.#control ?? this.#open()).catch(() => undefined);
    if (control === undefined) return;
    // Its end is the answer, also where it had to be killed.
    await control.ask("end").catch(() => undefined);
    rmSync(join(this.#options.folder, CONTROL_SOCKET), { force: true });
  }

  /** Once more of the next relay where this one ends, by itself or because it does not answer. */
  async #say(line: string): Promise<void> {
    const control = await this.#connected();
    await control.ask(line).catch(async (error: unknown) => {
      if (this.#closing) throw error;
      await (await this.#connected()).ask(line);
    });
  }

  #connected(): Promise<Control> {
    this.#control ??= this.#open()
      .catch(() => this.#spawn().then(() => this.#open()))
      .catch((cause: unknown) => {
        this.#control = undefined;
        throw new ProviderError(`the relay to NATS could not be started: ${String(cause)}`, { cause });
      });
    return this.#control;
  }

  async #open(): Promise<Control> {
    const { folder, stateDir, host, port, onUnanswered } = this.#options;
    const control = await Control.open(join(folder, CONTROL_SOCKET), async () => {
      onUnanswered();
      await endRelays(stateDir);
    });
    // A relay that was found may lead to where NATS was before.
    await control.ask(`nats ${host} ${port}`);
    // A dying relay may still take a connection. One that is lost before it was established fails its opening, which
    // then starts another relay; to treat it as lost as well would start two.
    control.onClose(() => this.#lost());
    return control;
  }

  #lost(): void {
    this.#control = undefined;
    if (this.#closing) return;
    this.#connected().then(this.#options.onRestart, () => undefined);
  }

  async #spawn(): Promise<void> {
    const { folder, host, port, stateDir } = this.#options;
    const script = join(import.meta.dir, "relay-process.ts");
    const child = Bun.spawn([process.execPath, script, folder, host, String(port), stateDir], {
      stdin: "ignore",
      stdout: "pipe",
      stderr: "ignore",
      detached: true,
      cwd: "/",
      env: { PATH: process.env.PATH ?? "" },
    });
    child.unref();
    const reader = child.stdout.getReader();
    const late = setTimeout(() => child.kill("SIGKILL"), START_DEADLINE_MS);
    const { done } = await reader.read();
    clearTimeout(late);
    await reader.cancel();
    if (done) throw new ProviderError("the relay ended at its start");
  }
}
