// Stage 1 of a boot: with the bootstrap's credential, asks the pool for one of the daemon's own.
import {
  type Bootstrap,
  CanceledError,
  ConnectionError,
  DeadlineError,
  EnrolAnswer,
  encode,
  enrolSubject,
  parseAnswer,
  toSandmeshError,
} from "../contract/core.ts";
import { type Credentials, createUserKey } from "../credentials/index.ts";
import { after } from "../link/after.ts";
import { type ConnectOptions, connect } from "../link/connect.ts";
import type { Link } from "../link/link.ts";
import { unlessAborted } from "../link/unless-aborted.ts";

/** One try's answer: the pool writes a record first. */
const ANSWER_MS = 5_000;
/** Between two tries: the pool may be restarting. */
const RETRY_MS = 250;

export interface Enrolled {
  credentials: Credentials;
  /** End the sandbox when no word of the pool came for this long. */
  deadManMs: number;
}

type Address = Pick<ConnectOptions, "urls" | "ca" | "relay" | "dial">;

/** How NATS is reached: as the bootstrap says, or by what `dial` gives. */
export function addressOf({ urls, ca, relay }: Bootstrap, dial: Address["dial"]): Address {
  return {
    urls,
    ...(ca === undefined ? {} : { ca }),
    ...(relay === undefined ? {} : { relay }),
    ...(dial === undefined ? {} : { dial }),
  };
}

/** The first try to connect; each further one may take twice as long, for where thousands boot at once the server is
 * only busy, and to begin anew keeps it so. */
const DIAL_MS = 5_000;
/** Between two tries; spread. */
const REDIAL_MS = 200;

/** Connects, trying until `deadline` (performance.now) or `signal`: a daemon may be up before its server is. Throws
 * ConnectionError, PermissionDeniedError, CanceledError. */
export async function dial(
  options: Omit<ConnectOptions, "connectTimeoutMs" | "patient">,
  deadline: number,
  signal?: AbortSignal,
): Promise<Link> {
  for (let tryMs = DIAL_MS; ; tryMs *= 2) {
    if (signal?.aborted) throw canceled();
    const leftMs = Math.ceil(deadline - performance.now());
    try {
      const connecting = connect({ ...options, connectTimeoutMs: Math.max(1, Math.min(tryMs, leftMs)) });
      return await (signal === undefined ? connecting : whileWanted(connecting, signal));
    } catch (error) {
      if (!(error instanceof ConnectionError) || leftMs <= REDIAL_MS) throw error;
      await pause(REDIAL_MS * (0.5 + Math.random()));
    }
  }
}

/** Resolves when the server has the subscriptions made so far, which come again with each connection: a server that goes
 * meanwhile is waited for until `deadline`. Throws ConnectionError, DeadlineError. */
export async function subscribed(link: Link, deadline: number): Promise<void> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const tooLate = () => reject(new DeadlineError("the server did not take the subscriptions in time"));
  const clear = after(Math.max(0, deadline - performance.now()), tooLate);
  let ended = false;
  void link.closed.then(() => {
    ended = true;
  });
  try {
    for (;;) {
      try {
        return await Promise.race([link.flush(), late]);
      } catch (error) {
        if (ended || !(error instanceof ConnectionError)) throw error;
        await pause(REDIAL_MS * Math.random());
      }
    }
  } finally {
    clear();
  }
}

const canceled = (): CanceledError => new CanceledError("the boot was canceled");

/** Does not wait for a connection that nobody wants any more; it is closed when it has come. */
async function whileWanted(connecting: Promise<Link>, signal: AbortSignal): Promise<Link> {
  try {
    return await unlessAborted(connecting, signal, canceled);
  } finally {
    if (signal.aborted) connecting.then((link) => link.close()).catch(() => {});
  }
}

const pause = (ms: number): Promise<void> => new Promise((go) => setTimeout(go, ms));

/** Enrols at `address` until `deadline` (performance.now) or `signal`. `asked` is called while the
 * pool's answer is waited for, at each try. Throws what the pool refused it with, PermissionDeniedError
 * (the bootstrap's credential is used up or ended), ConnectionError, DeadlineError and CanceledError. */
export async function enrol(
  bootstrap: Bootstrap,
  address: Address,
  incarnation: string,
  deadline: number,
  signal?: AbortSignal,
  asked?: () => void,
): Promise<Enrolled> {
  const { jwt, seed } = bootstrap;
  const connecting = dial({ ...address, credentials: { jwt, seed } }, deadline, signal);
  // While the server answers.
  const key = createUserKey();
  const { generation } = bootstrap;
  const body = encode({ version: 1, generation, incarnation, public_key: key.publicKey });
  const link = await connecting;
  try {
    const answer = await ask(link, bootstrap, body, deadline, signal, asked);
    return { credentials: { jwt: answer.jwt, seed: key.seed }, deadManMs: answer.dead_man_ms };
  } finally {
    // Nobody waits for it: the daemon's own connection is being made meanwhile.
    link.close().catch(() => {});
  }
}

/** Asks until there is an answer. The same key and incarnation asked twice is one enrolment to the pool. */
async function ask(
  link: Link,
  { tenant, sandbox }: Bootstrap,
  body: Uint8Array,
  deadline: number,
  signal: AbortSignal | undefined,
  asked: (() => void) | undefined,
): Promise<EnrolAnswer> {
  for (;;) {
    const leftMs = deadline - performance.now();
    if (leftMs <= 0) throw new DeadlineError("the pool did not answer the enrolment in time", { sandbox });
    try {
      const timeoutMs = Math.min(ANSWER_MS, Math.ceil(leftMs));
      const options = signal === undefined ? { timeoutMs } : { timeoutMs, signal };
      const answer = link.request("pool", enrolSubject(tenant, sandbox), body, options);
      // After the request has left.
      if (asked !== undefined) setImmediate(asked);
      const message = await answer;
      return parseAnswer(EnrolAnswer, message.data);
    } catch (thrown) {
      const { code } = toSandmeshError(thrown);
      const again = code === "unreachable" || code === "deadline_exceeded" || code === "pool_unavailable";
      if (!again && !(thrown instanceof ConnectionError)) throw thrown;
      if (code !== "deadline_exceeded") await pause(RETRY_MS);
    }
  }
}
