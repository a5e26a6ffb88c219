// The engine's JavaScript half: turns calls into the native library's, and its frames into calls of the command that they
// belong to. What goes in is packed by request.ts; what a command means is decided in agent/exec.
import { ptr, toArrayBuffer } from "bun:ffi";
import { takeBlock } from "../../broker/link/blocks.ts";
import { Folders } from "./folders.ts";
import { BOX_BYTES, FRAME, HEADER_BYTES, K_ERR, K_OUT, type Library, openLibrary } from "./library.ts";
import type { EngineListener } from "./listener.ts";
import { Waits } from "./waits.ts";

type Talkative = typeof K_OUT | typeof K_ERR;

const NOTHING = new Uint8Array(1);
/** How long JavaScript's timers may be late for it. */
const SETTLE_MS = 3;
/** Of a talkative command's output, at once: as much as one chunk on the wire. */
const BLOCK_BYTES = 256 * 1024;
/** A block that is this full is given away as it is; what is less is copied out of it, so that nobody holds much more
 * than there is in it. */
const FULL_BYTES = 192 * 1024;
/** A read that got less than this was too early: the next one waits, ms. */
const BATCH_BYTES = 48 * 1024;
const BATCH_MS = 1;
/** How often it is looked whether the engine's thread waits for a child that someone has stopped. */
const NUDGE_MS = 50;

export class Engine {
  readonly #native: Library;
  readonly #boxes: readonly [Buffer, Buffer];
  readonly #listeners = new Map<number, EngineListener>();
  /** For all that are no commands. */
  readonly waits: Waits;
  #next: 0 | 1 = 0;
  #folders: Folders | undefined;
  /** To read into. */
  #block: Buffer | undefined;
  /** Commands that were to be begun since it was last looked how those before are. */
  #asked = 0;
  #nudging: ReturnType<typeof setTimeout> | undefined;

  private constructor(native: Library, boxes: readonly [Buffer, Buffer]) {
    this.#native = native;
    this.#boxes = boxes;
    this.waits = new Waits(native);
  }

  /** Loads the library and starts its thread; one per process (a second call would share the first one's state). */
  static async open(libraryPath: string): Promise<Engine> {
    const native = openLibrary(libraryPath);
    const fd = native.engine_open();
    if (fd < 0) throw new Error(`the engine could not start (errno ${-fd})`);
    const box = (index: number): Buffer => {
      const address = native.engine_box(index);
      if (typeof address !== "number") throw new Error("the engine has no outbox");
      return Buffer.from(toArrayBuffer(address, 0, BOX_BYTES));
    };
    const engine = new Engine(native, [box(0), box(1)]);
    // A socket, since that is what Bun's loop waits for by itself; a pipe would be read by its thread pool. The types
    // know `fd` for listening and sending only.
    const options = { fd, socket: { data: () => engine.#take() } };
    // Not unref'd: a loop with nothing else to wait for would spin instead of sleep.
    await Bun.connect(options as unknown as Bun.UnixSocketOptions<undefined>);
    return engine;
  }

  /** Becomes the one to whom orphans of the commands fall, and who reaps them. From then on nothing else in this
   * process may start processes: their ends would be taken from it. */
  reapOrphans(): void {
    const result = this.#native.engine_reap();
    if (result < 0) throw new Error(`cannot become the reaper of orphans (errno ${-result})`);
  }

  /** Closes this process to others of its user, and gives it its name in process lists. */
  hide(name: string): void {
    const result = this.#native.engine_hide(ptr(Buffer.from(`${name}\0`)));
    if (result < 0) throw new Error(`cannot hide this process from others (errno ${-result})`);
  }

  /** The soft limit of open files that commands get (Bun has raised the daemon's own). */
  setSoftFiles(limit: number): void {
    this.#native.engine_soft_files(limit);
  }

  /** Of a command that writes much: what is in it while its reader is waited for is the sandbox's memory. */
  setPipe(bytes: number): void {
    this.#native.engine_pipe(bytes);
  }

  /** Begins a command packed by request.ts, whose block is used up, and then tells tookSpare. Answers its handle, or a negative
   * errno. */
  start(request: Buffer, listener: EngineListener): number {
    const handle = Number(this.#native.engine_start(ptr(request), request.length));
    if (handle < 0) return handle;
    this.#asked++;
    this.#listeners.set(handle, listener);
    const pid = request.readInt32LE(0);
    // After the caller has the handle, and after all that came with this request was looked at.
    if (pid > 0) queueMicrotask(() => this.#begun(handle, pid, listener));
    else this.#nudge();
    return handle;
  }

  /** Whether commands can be born in the cgroup whose folder that descriptor is, which is tried; without one, whether none
   * has been refused it so far. Who is refused it is started where the daemon is. */
  mayGroup(folder = -1): boolean {
    return this.#native.engine_may_group(folder) > 0;
  }

  #nudge(): void {
    this.#nudging ??= setTimeout(() => {
      this.#nudging = undefined;
      if (this.#native.engine_nudge() > 0) this.#nudge();
    }, NUDGE_MS);
  }

  /** One that came alone is waited for, as long as nothing else is to be done. */
  #begun(handle: number, pid: number, listener: EngineListener): void {
    const alone = this.#asked === 1;
    this.#asked = 0;
    try {
      listener.started(pid);
    } finally {
      if (this.#native.engine_settle(handle, alone ? SETTLE_MS : 0) > 0) this.#take();
    }
  }

  /** Whether the bytes were taken: at once, later (stdinTaken tells), or not (it is closed). One at a time. */
  stdin(handle: number, data: Uint8Array, last: boolean): "taken" | "later" | "closed" {
    const bytes = data.length > 0 ? data : NOTHING;
    const result = this.#native.engine_stdin(handle, ptr(bytes), data.length, last ? 1 : 0);
    return result > 0 ? "taken" : result === 0 ? "later" : "closed";
  }

  pause(handle: number, paused: boolean): void {
    this.#native.engine_pause(handle, paused ? 1 : 0);
  }
  signal(handle: number, number: number): boolean {
    return this.#native.engine_signal(handle, number) === 1;
  }
  resize(handle: number, rows: number, cols: number): void {
    this.#native.engine_resize(handle, rows, cols);
  }
  /** Closes its terminal. */
  hangUp(handle: number): void {
    this.#native.engine_hang_up(handle);
  }
  /** Tells nobody any more what becomes of it. */
  forget(handle: number): void {
    this.#listeners.delete(handle);
  }
  /** Waits no longer for background processes that hold the command's pipes. */
  letGo(handle: number): void {
    this.#native.engine_let_go(handle);
  }

  /** Reads a short file to where its content of the last time stands, or zeros. Answers its bytes; 0 where it is as it was;
   * less where it cannot be read. */
  reread(fd: number, text: Buffer): number {
    return this.#native.engine_reread(fd, ptr(text), text.length);
  }

  /** Whether there is something to be read within that time, in which nothing else is done. */
  awaits(fd: number, maxUs: number): boolean {
    return this.#native.engine_await(fd, maxUs) === 1;
  }

  /** Waits until the loop has something to do, at most that long, in which none of its timers goes off. False where that
   * cannot be had. */
  rest(maxMs: number): boolean {
    return this.#native.engine_rest(maxMs) === 1;
  }

  /** Whether a spare shell stands ready; undefined where none is ever made. */
  hasSpare(): boolean | undefined {
    const has = this.#native.engine_has_spare();
    return has < 0 ? undefined : has === 1;
  }
  /** Where processes are few: commands that come together are begun by the engine's thread, one by one. */
  startWithoutThreads(): void {
    this.#native.engine_no_starters();
  }
  /** Ends the spare shell, and makes no more. */
  endSpare(): void {
    this.#native.engine_no_spare();
  }

  get folders(): Folders {
    this.#folders ??= new Folders(this.#native);
    return this.#folders;
  }

  /** Takes the outbox once: what comes meanwhile wakes the loop again. (Taking until it is empty let one talkative
   * command starve the loop for seconds.) */
  #take(): void {
    this.#asked = 0;
    const length = this.#native.engine_take();
    if (length === 0) return;
    const box = this.#boxes[this.#next];
    this.#next = this.#next === 0 ? 1 : 0;
    for (let at = 0; at < length; ) {
      const size = box.readUInt32LE(at + 8);
      try {
        this.#frame(box, box.readUInt32LE(at), box.readUInt32LE(at + 4), at + HEADER_BYTES, size);
      } catch (thrown) {
        // One command's fault must not take the others' frames with it; it is reported as uncaught.
        queueMicrotask(() => {
          throw thrown;
        });
      }
      at += HEADER_BYTES + ((size + 7) & ~7);
    }
  }

  /** A talkative command's output is read here, and not by the engine's thread: into memory where it stays, and as much at
   * once as has come while this thread was busy. */
  #read(handle: number, k: Talkative): void {
    const listener = this.#listeners.get(handle);
    if (listener === undefined) return;
    this.#block ??= takeBlock(BLOCK_BYTES);
    const block = this.#block;
    const length = this.#native.engine_read(handle, k, ptr(block), BLOCK_BYTES);
    if (length <= 0) return;
    const again = (): void => this.#read(handle, k);
    if (length < BATCH_BYTES) setTimeout(again, BATCH_MS);
    else setImmediate(again);
    const full = length >= FULL_BYTES;
    if (full) this.#block = undefined;
    const data = block.subarray(0, length);
    listener.output(k === K_OUT ? "stdout" : "stderr", full ? data : copyOf(data));
  }

  #frame(box: Buffer, handle: number, type: number, at: number, size: number): void {
    if (type === FRAME.gone) {
      this.waits.gone(handle);
      return;
    }
    if (type === FRAME.came) {
      this.waits.came(handle, box.readInt32LE(at));
      return;
    }
    const listener = this.#listeners.get(handle);
    if (listener === undefined) return;
    switch (type) {
      case FRAME.stdout:
      case FRAME.stderr: {
        const data = copyOf(box.subarray(at, at + size));
        listener.output(type === FRAME.stdout ? "stdout" : "stderr", data);
        return;
      }
      case FRAME.more:
        this.#read(handle, box.readInt32LE(at) === K_OUT ? K_OUT : K_ERR);
        return;
      case FRAME.started:
        listener.started(box.readInt32LE(at));
        return;
      case FRAME.failed:
        this.#listeners.delete(handle);
        listener.failed({
          stage: box.readInt32LE(at),
          errno: box.readInt32LE(at + 4),
          detail: box.readInt32LE(at + 8),
        });
        return;
      case FRAME.exited:
        listener.exited({
          status: box.readInt32LE(at),
          groupAlive: box.readInt32LE(at + 4) !== 0,
          cpuMs: Number(box.readBigInt64LE(at + 8)) / 1000,
          maxRssBytes: Number(box.readBigInt64LE(at + 16)),
          untaken: box.readInt32LE(at + 24) !== 0,
        });
        return;
      case FRAME.closed:
        this.#listeners.delete(handle);
        listener.closed(box.readUInt32LE(at) !== 0);
        return;
      case FRAME.stdin:
        listener.stdinTaken();
        return;
    }
  }
}

function copyOf(data: Uint8Array): Buffer {
  const copy = takeBlock(data.length);
  copy.set(data);
  return copy;
}
