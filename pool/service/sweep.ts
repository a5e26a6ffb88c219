// All connections that there are, from all of NATS's servers, page by page.
import { isSame, type OpenConnection, pageOfConnections } from "../../broker/server/index.ts";

/** By server. */
export type Answers = ReadonlyMap<string, readonly OpenConnection[]>;

/** Who is on which key costs a server 0.1 ms for each connection that it has, at each question, whatever the page: it reads
 * their JWTs. So pages are few: a connection is 1.4 KB of an answer, a page up to 5.7 MB, which the pool reads in 30 ms. Of
 * 12,000 sandboxes on one server that are 4 questions one after the other, 17 MB, and 5 s of one of its processors; a question
 * for each sandbox (4 ms of 5,000 connections, so 9 ms of 12,000) would be 110 s. */
export const PAGE = 4_096;
/** Who ends between two pages moves the next one: they overlap, and where that did not do they do not fit. */
export const OVERLAP = 256;

export interface Swept {
  /** By key. */
  open: ReadonlyMap<string, readonly OpenConnection[]>;
  /** The servers of which nothing is missing. */
  complete: ReadonlySet<string>;
  /** Whether any has answered. */
  answered: boolean;
}

/** Asks until each server that answers has no more, or `isCurrent` says that nobody wants to know. */
export async function sweep(
  ask: (question: Uint8Array) => Promise<Answers>,
  isCurrent: () => boolean,
): Promise<Swept> {
  const open = new Map<string, OpenConnection[]>();
  const complete = new Set<string>();
  /** Of the pages before, by server; none of one that has left something out. */
  let fitting = new Map<string, number>();
  let answered = false;
  let more = true;
  for (let offset = 0; more && isCurrent(); offset += PAGE - OVERLAP) {
    const answers = await ask(pageOfConnections(offset, PAGE));
    const before = fitting;
    fitting = new Map();
    more = false;
    for (const [server, page] of answers) {
      answered = true;
      note(open, page);
      if (complete.has(server)) continue;
      const last = page.at(-1)?.number ?? 0;
      const fits =
        offset === 0 || (page[0]?.number ?? Number.POSITIVE_INFINITY) <= (before.get(server) ?? -1);
      if (page.length >= PAGE) more = true;
      else if (fits) complete.add(server);
      if (fits) fitting.set(server, last);
    }
  }
  return { open, complete, answered };
}

function note(open: Map<string, OpenConnection[]>, page: readonly OpenConnection[]): void {
  for (const connection of page) {
    if (connection.user === undefined) continue;
    const same = open.get(connection.user);
    if (same === undefined) open.set(connection.user, [connection]);
    else if (!same.some((other) => isSame(other, connection))) same.push(connection);
  }
}
