// Names of a folder, in order, from one on and as many as fit: what a page of a listing is taken from, however many there are.
// Pure.

/** Of names, with what else is held of each. Some 20,000 of them; while they are chosen they take eight times as much. */
export const WINDOW_BYTES = 512 * 1024;
/** Beside its name: its kind, and where it ends. */
const ENTRY_BYTES = 5;
/** What bytes show as that are not UTF-8. */
export const REPLACED = "\ufffd";

/** The first that may stand behind it: no name has a NUL. */
export const behind = (name: string): string => `${name}\0`;

interface Item {
  /** What the order is by, and what is told. */
  shown: string;
  /** Where `shown` does not say which it is. */
  raw: Buffer | undefined;
  kind: number;
  /** That it takes of a window. */
  bytes: number;
}

const inOrder = (a: Item, b: Item): number =>
  a.shown < b.shown ? -1 : a.shown > b.shown ? 1 : (a.raw?.compare(b.raw ?? Buffer.from(b.shown)) ?? 0);

/** Names by UTF-16 code unit. */
export class Window {
  /** It says nothing of names before this one; undefined: it begins with the folder's first. */
  readonly from: string | undefined;
  /** There are none behind it. */
  readonly isLast: boolean;
  readonly #text: Buffer;
  readonly #ends: Uint32Array;
  readonly #kinds: Uint8Array;

  constructor(from: string | undefined, isLast: boolean, text: Buffer, ends: Uint32Array, kinds: Uint8Array) {
    this.from = from;
    this.isLast = isLast;
    this.#text = text;
    this.#ends = ends;
    this.#kinds = kinds;
  }

  get length(): number {
    return this.#ends.length;
  }

  get bytes(): number {
    return this.#text.length + this.length * ENTRY_BYTES;
  }

  /** As the file system has it. */
  raw(index: number): Buffer {
    return this.#text.subarray(this.#ends[index - 1] ?? 0, this.#ends[index]);
  }

  name(index: number): string {
    return this.#text.toString("utf8", this.#ends[index - 1] ?? 0, this.#ends[index]);
  }

  /** As of getdents64(2). */
  kind(index: number): number {
    return this.#kinds[index] ?? 0;
  }

  /** Where names from this one on begin, if so many of them, or all that there are, are in it. */
  find(from: string, many: number): number | undefined {
    if (this.from !== undefined && from < this.from) return undefined;
    const first = this.#indexOf(from);
    return this.isLast || first + many <= this.length ? first : undefined;
  }

  /** Of the first name that is not before this one. */
  #indexOf(name: string): number {
    let low = 0;
    let high = this.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.name(middle) < name) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** Its first half. */
  half(): Window {
    const many = this.length >>> 1;
    const text = Buffer.from(this.#text.subarray(0, this.#ends[many - 1] ?? 0));
    return new Window(this.from, false, text, this.#ends.slice(0, many), this.#kinds.slice(0, many));
  }
}

/** Chooses a window's names among all of a folder, which come in any order. */
export class Choice {
  readonly #from: string | undefined;
  readonly #most: number;
  #items: Item[] = [];
  #bytes = 0;
  /** Those from here on are left out. */
  #end: string | undefined;

  constructor(from: string | undefined, most: number) {
    this.#from = from;
    this.#most = most;
  }

  /** `place` gives it as the file system has it, which may lie where others do afterwards. */
  add(shown: string, place: () => Buffer, kind: number): void {
    if (this.#from !== undefined && shown < this.#from) return;
    if (this.#end !== undefined && shown >= this.#end) return;
    const raw = shown.includes(REPLACED) ? Buffer.from(place()) : undefined;
    const bytes = (raw?.length ?? Buffer.byteLength(shown)) + ENTRY_BYTES;
    this.#items.push({ shown, raw, kind, bytes });
    this.#bytes += bytes;
    if (this.#bytes > 2 * this.#most) this.#cut();
  }

  window(): Window {
    this.#cut();
    const items = this.#items;
    const text = Buffer.allocUnsafeSlow(this.#bytes - items.length * ENTRY_BYTES);
    const ends = new Uint32Array(items.length);
    const kinds = new Uint8Array(items.length);
    let at = 0;
    for (const [i, { shown, raw, kind }] of items.entries()) {
      at += raw === undefined ? text.write(shown, at) : raw.copy(text, at);
      ends[i] = at;
      kinds[i] = kind;
    }
    return new Window(this.#from, this.#end === undefined, text, ends, kinds);
  }

  #cut(): void {
    const items = this.#items.sort(inOrder);
    let many = 0;
    let room = this.#most;
    for (const { bytes } of items) {
      room -= bytes;
      if (room < 0 && many > 0) break;
      many++;
    }
    const end = items[many]?.shown;
    if (end === undefined) return;
    this.#end = end;
    // Names that show alike stay on one side, unless they fill it.
    const alike = items.findIndex(({ shown }) => shown === end);
    for (const { bytes } of items.splice(alike > 0 ? alike : many)) this.#bytes -= bytes;
  }
}
