// A watch's bytes, cut into what it tells: lines of JSON, or frames with their length before them.
import { ProviderError } from "../../../../broker/contract/index.ts";

/** One event; an object of the API server's has 1.5 MB at most. */
const MAX_FRAME = 16 * 1024 * 1024;
const LENGTH_BYTES = 4;

/** What each part completes. */
export function lines(): (part: Buffer) => string[] {
  const decoder = new TextDecoder();
  let rest = "";
  return (part) => {
    const found = (rest + decoder.decode(part, { stream: true })).split("\n");
    rest = found.pop() ?? "";
    return found;
  };
}

/** As `lines`. Throws ProviderError (reason `unreadable`). */
export function frames(): (part: Buffer) => Uint8Array[] {
  let rest: Buffer = Buffer.alloc(0);
  return (part) => {
    const all = rest.length === 0 ? part : Buffer.concat([rest, part]);
    const found: Uint8Array[] = [];
    let at = 0;
    while (all.length - at >= LENGTH_BYTES) {
      const length = all.readUInt32BE(at);
      if (length > MAX_FRAME) {
        throw new ProviderError(`a frame of the watch is of ${length} bytes`, { reason: "unreadable" });
      }
      const end = at + LENGTH_BYTES + length;
      if (end > all.length) break;
      found.push(all.subarray(at + LENGTH_BYTES, end));
      at = end;
    }
    rest = all.subarray(at);
    return found;
  };
}
