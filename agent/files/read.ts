// Reading a file, or a range of it: regular files, those of /proc whose size is 0, and devices by length.
import type { ByteSource, ReadRequestParsed } from "../../broker/endpoint/executor.ts";
import { takeBlock } from "../../broker/link/blocks.ts";
import { fileFault, toFileError } from "./error.ts";
import { noContent, openToRead, refusePipes } from "./open.ts";
import { type Opened, refuseCutOff } from "./shorter.ts";
import { typeOf } from "./stat.ts";

class FileSource implements ByteSource {
  readonly size?: number;
  readonly #opened: Opened;
  /** null where the file has no positions (a device). */
  #position: number | null;
  #left: number;

  constructor(opened: Opened, options: { position: number | null; length: number; size?: number }) {
    this.#opened = opened;
    this.#position = options.position;
    this.#left = options.length;
    if (options.size !== undefined) this.size = options.size;
  }

  async read(max: number): Promise<Uint8Array | undefined> {
    const want = Math.min(max, this.#left);
    if (want <= 0) return undefined;
    const buffer = takeBlock(want);
    try {
      const { bytesRead } = await this.#opened.file.read(buffer, 0, want, this.#position);
      if (bytesRead === 0) return await this.#ended();
      if (this.#position !== null) this.#position += bytesRead;
      this.#left -= bytesRead;
      return bytesRead === want ? buffer : buffer.subarray(0, bytesRead);
    } catch (thrown) {
      throw toFileError("read", this.#opened.path, thrown);
    }
  }

  async #ended(): Promise<undefined> {
    // A block device has no size here.
    if (this.#position !== null && this.#position < this.#opened.began.size)
      await refuseCutOff("read", this.#opened);
    return undefined;
  }

  close(): Promise<void> {
    return this.#opened.file.close();
  }
}

/** Opens `at`, where what was asked for lies, from byte `offset` on, at most `length` bytes. Throws FileError:
 * folders, pipes and sockets have no content to read, and a device has no end, so it needs a length. Where the file is cut
 * off before the size that it has now, reading on throws FileError with the reason ESTALE. */
export async function openForReading(
  at: string,
  { path, offset, length }: ReadRequestParsed,
): Promise<ByteSource> {
  await refusePipes("read", at, path);
  const file = await openToRead(at);
  try {
    const stats = await file.stat();
    const type = typeOf(stats);
    const positioned = type === "file" || type === "block";
    if (!positioned && (type !== "char" || length === undefined)) throw noContent("read", path, type);
    if (!positioned && offset > 0)
      throw fileFault("ESPIPE", `cannot read ${path} from ${offset} on: a device has no positions`);
    const opened = { file, began: stats, path };
    return new FileSource(opened, {
      position: positioned ? offset : null,
      length: length ?? Number.POSITIVE_INFINITY,
      // /proc says 0 whatever the file holds, and a block device has none here.
      ...(type === "file" && stats.size > 0 ? { size: stats.size } : {}),
    });
  } catch (thrown) {
    await file.close();
    throw thrown;
  }
}
