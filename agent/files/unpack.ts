// A tar stream into a folder, entry by entry as it comes: memory does not grow with the archive.
import { once } from "node:events";
import { extract } from "tar-stream";
import { errnoOf, FileError, SandmeshError } from "../../broker/contract/index.ts";
import { archiveEntry, NAME_ENCODING } from "../../broker/contract/tar/entry.ts";
import { GnuSparse } from "../../broker/contract/tar/gnu-sparse.ts";
import type { ByteSink } from "../../broker/endpoint/executor.ts";
import { Destination } from "./destination.ts";
import { fileFault, toFileError } from "./error.ts";
import { Folder } from "./folder.ts";
import { type Ground, withTarget } from "./ground.ts";

/** So much may wait in the parser; a part of a transfer is at most this long. */
const WATER_MARK_BYTES = 256 * 1024;
const OPTIONS = { highWaterMark: WATER_MARK_BYTES, filenameEncoding: NAME_ENCODING };

class UnpackSink implements ByteSink {
  readonly #destination: Destination;
  readonly #path: string;
  readonly #extract = extract(OPTIONS);
  readonly #sparse = new GnuSparse();
  /** Rejects with the first thing that went wrong. */
  readonly #failed: Promise<never>;
  #failure: unknown;
  #entry: Promise<void> = Promise.resolve();
  #closed = false;

  constructor(destination: Destination, path: string) {
    this.#destination = destination;
    this.#path = path;
    const { promise, reject } = Promise.withResolvers<never>();
    promise.catch(() => {});
    this.#failed = promise;
    const fail = (thrown: unknown): void => {
      this.#failure ??= thrown;
      reject(this.#failure);
    };
    this.#extract.on("error", fail);
    this.#extract.on("entry", (header, stream, next) => {
      // An entry cut off is told by the archive's own error; without a listener it would end the daemon.
      stream.on("error", () => {});
      const put = async (): Promise<void> => {
        await destination.put(archiveEntry(header), stream, header.size ?? 0);
      };
      this.#entry = put().then(
        () => {
          // What was not read (the content of what is skipped) must go before the next entry can come.
          stream.resume();
          next();
        },
        (thrown: unknown) => {
          fail(thrown);
          this.#extract.destroy();
        },
      );
    });
  }

  async write(data: Uint8Array): Promise<void> {
    await this.#orNothing(async () => {
      if (this.#failure !== undefined) throw this.#failure;
      let isRoom = true;
      for (const part of this.#sparse.push(data)) isRoom = this.#extract.write(part);
      if (!isRoom) await Promise.race([once(this.#extract, "drain"), this.#failed]);
    });
  }

  async finish(): Promise<void> {
    await this.#orNothing(async () => {
      if (this.#failure !== undefined) throw this.#failure;
      const finished = once(this.#extract, "finish");
      for (const part of this.#sparse.end()) this.#extract.write(part);
      this.#extract.end(undefined);
      await Promise.race([finished, this.#failed]);
      await this.#entry;
      if (this.#failure !== undefined) throw this.#failure;
      await this.#destination.finish();
      await this.#close();
    });
  }

  /** What was unpacked stays; nothing hidden does. */
  async abort(): Promise<void> {
    this.#extract.destroy();
    await this.#entry;
    await this.#close();
  }

  async #close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.#destination.close();
  }

  async #orNothing(act: () => Promise<void>): Promise<void> {
    try {
      await act();
    } catch (thrown) {
      await this.abort().catch(() => {});
      const error = this.#errorOf(thrown);
      throw this.#destination.touched ? error : nothingWritten(error);
    }
  }

  #errorOf(thrown: unknown): SandmeshError {
    // tar-stream's own errors have no errno: they say that the bytes are no tar, or not all of one.
    if (thrown instanceof Error && !(thrown instanceof SandmeshError) && errnoOf(thrown) === undefined)
      return fileFault(
        "EINVAL",
        `cannot unpack into ${this.#path}: not a whole tar archive: ${thrown.message}`,
      );
    return toFileError("unpack into", this.#path, thrown);
  }
}

/** Begins to unpack a tar stream into the folder `path`, which is made where it is missing. Files and links replace
 * what is in their place; devices and fifos are skipped. A folder that was there keeps its own mode and time, a new one
 * gets those that the archive has of it (as "./"). `owner` keeps the archive's uid and gid (needs root). What was
 * unpacked before an error stays, whole file by whole file. Throws FileError; with `started: "no"` where nothing was
 * written. */
export async function openUnpack(ground: Ground, path: string, owner: boolean): Promise<ByteSink> {
  try {
    const made = await ground.makeFolders(path);
    const folder = await withTarget(ground, path, (at) => Folder.open(at));
    return new UnpackSink(new Destination(folder, { owner, made }), path);
  } catch (thrown) {
    throw nothingWritten(toFileError("unpack into", path, thrown));
  }
}

const nothingWritten = (error: SandmeshError): SandmeshError =>
  error instanceof FileError
    ? new FileError(error.message, { reason: error.reason ?? "EIO", cause: error.cause, started: "no" })
    : error;
