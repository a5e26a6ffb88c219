// One kind of object in one place of the API, by a label: listed by pages, and watched. What is answered is parsed.
import * as v from "valibot";
import { check, ProviderError } from "../../../../broker/contract/index.ts";
import { eventOf } from "./objects.ts";
import { errorOf } from "./status.ts";
import type { Transport } from "./transport.ts";

/** Objects a page: parsing one holds the event loop for some milliseconds. */
const PAGE = 500;
/** The server ends a watch by then; spread, so that those of several pools do not come back at once. */
const WATCH_S = 300;
/** A bookmark comes each minute; a watch that is silent for longer is dead. */
const WATCH_SILENT_MS = 150_000;

export type Line<T> =
  | { type: "ADDED" | "MODIFIED" | "DELETED"; object: T }
  | { type: "BOOKMARK"; version: string }
  | { type: "ERROR"; code: number; message: string };

const Kind = v.object({ type: v.picklist(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]) });
const Bookmark = v.object({ object: v.object({ metadata: v.object({ resourceVersion: v.string() }) }) });
const Refusal = v.object({
  object: v.object({ code: v.optional(v.number(), 0), message: v.optional(v.string(), "") }),
});

export class Collection<T> {
  readonly #transport: Transport;
  readonly #path: string;
  readonly #selector: string;
  readonly #schema: v.GenericSchema<unknown, T>;
  readonly #what: string;
  /** Of a line of the watch. */
  readonly #changed: v.GenericSchema<unknown, { object: T }>;

  readonly #accept: string;

  /** `what`: in the words of an error. `accept`: the form in which it is told. */
  constructor(
    transport: Transport,
    path: string,
    selector: string,
    schema: v.GenericSchema<unknown, T>,
    what: string,
    accept = "application/json",
  ) {
    this.#accept = accept;
    this.#transport = transport;
    this.#path = path;
    this.#selector = encodeURIComponent(selector);
    this.#schema = schema;
    this.#what = what;
    this.#changed = v.object({ object: schema });
  }

  /** All of them, and the version that a watch goes on from. */
  async list(signal: AbortSignal): Promise<{ items: T[]; version: string }> {
    const Page = v.object({
      metadata: v.object({ resourceVersion: v.string(), continue: v.exactOptional(v.string()) }),
      items: v.array(this.#schema),
    });
    const items: T[] = [];
    let next: string | undefined;
    for (;;) {
      const more = next === undefined ? "" : `&continue=${encodeURIComponent(next)}`;
      const path = `${this.#path}?labelSelector=${this.#selector}&limit=${PAGE}${more}`;
      const right = `list ${this.#what}`;
      const request = { method: "GET" as const, path, accept: this.#accept, right };
      const reply = await this.#transport.request(request, signal, true);
      if (reply.status === 410 && next !== undefined) {
        // The pages' snapshot was compacted away: from the start.
        items.length = 0;
        next = undefined;
        continue;
      }
      if (reply.status >= 300) throw errorOf(reply, `listing ${this.#what}`);
      const page = v.safeParse(Page, reply.body);
      if (!page.success) throw new ProviderError(`the API server's list of ${this.#what} cannot be read`);
      items.push(...page.output.items);
      next = page.output.metadata.continue;
      if (next === undefined || next === "") return { items, version: page.output.metadata.resourceVersion };
    }
  }

  /** What happens after `version`. Ends when the server ends it. Throws WatchRefused, ProviderError for what cannot be
   * read, and network errors. */
  async *watch(version: string, signal: AbortSignal): AsyncGenerator<Line<T>, void> {
    const seconds = Math.round(WATCH_S * (1 + Math.random() / 2));
    const query = `watch=1&allowWatchBookmarks=true&timeoutSeconds=${seconds}`;
    const path = `${this.#path}?labelSelector=${this.#selector}&resourceVersion=${version}&${query}`;
    const request = { path, accept: this.#accept };
    for await (const told of this.#transport.watch(request, signal, WATCH_SILENT_MS)) {
      if (told.length > 0) yield lineOf(told, this.#changed, this.#what);
    }
  }
}

function lineOf<T>(
  told: string | Uint8Array,
  changed: v.GenericSchema<unknown, { object: T }>,
  what: string,
): Line<T> {
  try {
    const line: unknown = typeof told === "string" ? JSON.parse(told) : eventOf(told);
    const { type } = check(Kind, line);
    if (type === "BOOKMARK") return { type, version: check(Bookmark, line).object.metadata.resourceVersion };
    if (type === "ERROR") return { type, ...check(Refusal, line).object };
    return { type, object: check(changed, line).object };
  } catch (cause) {
    throw new ProviderError(`a line of the watch on ${what} cannot be read`, { reason: "unreadable", cause });
  }
}
