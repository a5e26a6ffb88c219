// The pool's side of the relay: starts it, or finds the one that a pool before left running, and names sandboxes to it.
import { rmSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import type { Socket } from "bun";
import { ProviderError } from "../../../../broker/contract/index.ts";
import { CONTROL_SOCKET } from "./relay-process.ts";

const START_DEADLINE_MS = 10_000;

interface Control {
  socket: Socket<undefined>;
  /** One a line sent, in order. */
  waiting: ((error?: Error) => void)[];
}

export interface RelayOptions {
  folder: string;
  stateDir: string;
  host: string;
  port: number;
  /** Called when the relay died under us, after another was started. */
  onRestart: () => void;
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
    control?.socket.end();
  }

  /** Ends the relay, if one runs. */
  async end(): Promise<void> {
    this.#closing = true;
    const control = await (this.#control ?? this.#open()).catch(() => undefined);
    if (control === undefined) return;
    await new Promise<void>((resolve) => {
      control.waiting.push(() => resolve());
      control.socket.write("end\n");
    });
    rmSync(join(this.#options.folder, CONTROL_SOCKET), { force: true });
  }

  async #say(line: string): Promise<void> {
    const control = await this.#connected();
    await new Promise<void>((resolve, reject) => {
      control.waiting.push((error) => (error === undefined ? resolve() : reject(error)));
      control.socket.write(`${line}\n`);
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
    const waiting: Control["waiting"] = [];
    const ended = () => new ProviderError("the relay to NATS ended");
    let lines = "";
    let closed = false;
    let established = false;
    const socket = await Bun.connect<undefined>({
      unix: join(this.#options.folder, CONTROL_SOCKET),
      socket: {
        data: (_, data) => {
          const parts = (lines + data.toString()).split("\n");
          lines = parts.pop() ?? "";
          for (const _line of parts) waiting.shift()?.();
        },
        // A dying relay may still take a connection. One that is lost before it was established fails its opening,
        // which then starts another relay; to treat it as lost as well would start two.
        close: () => {
          closed = true;
          for (const settle of waiting.splice(0)) settle(ended());
          if (established) this.#lost();
        },
      },
    });
    // A relay that was found may lead to where NATS was before.
    await new Promise<void>((resolve, reject) => {
      if (closed) return reject(ended());
      waiting.push((error) => (error === undefined ? resolve() : reject(error)));
      socket.write(`nats ${this.#options.host} ${this.#options.port}\n`);
    });
    established = true;
    return { socket, waiting };
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
