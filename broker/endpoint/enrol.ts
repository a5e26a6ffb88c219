// Stage 1 of a boot: with the bootstrap's credential, asks the pool for one of the daemon's own.
import {
  type Bootstrap,
  ConnectionError,
  DeadlineError,
  EnrolAnswer,
  encode,
  enrolSubject,
  parseAnswer,
  toSandmeshError,
} from "../contract/index.ts";
import { type Credentials, createUserKey } from "../credentials/index.ts";
import { type ConnectOptions, connect } from "../link/connect.ts";
import type { Link } from "../link/link.ts";

/** One try's answer: the pool writes a record first. */
const ANSWER_MS = 5_000;
/** Between two tries: the pool may be restarting. */
const RETRY_MS = 250;

export interface Enrolled {
  credentials: Credentials;
  /** End the sandbox when no word of the pool came for this long. */
  deadManMs: number;
}

/** How the bootstrap says that NATS is reached. */
export function addressOf(bootstrap: Bootstrap): Pick<ConnectOptions, "urls" | "ca" | "relay"> {
  const { urls, ca, relay } = bootstrap;
  return { urls, ...(ca === undefined ? {} : { ca }), ...(relay === undefined ? {} : { relay }) };
}

/** Enrols within `timeoutMs`. Throws what the pool refused it with, PermissionDeniedError (the bootstrap's credential
 * is used up or ended), ConnectionError and DeadlineError. */
export async function enrol(bootstrap: Bootstrap, incarnation: string, timeoutMs: number): Promise<Enrolled> {
  const deadline = performance.now() + timeoutMs;
  const { jwt, seed } = bootstrap;
  const connecting = connect({
    ...addressOf(bootstrap),
    credentials: { jwt, seed },
    connectTimeoutMs: timeoutMs,
    patient: true,
  });
  // While the server answers.
  const key = createUserKey();
  const body = encode({
    version: 1,
    generation: bootstrap.generation,
    incarnation,
    public_key: key.publicKey,
  });
  const link = await connecting;
  try {
    const answer = await ask(link, bootstrap, body, deadline);
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
): Promise<EnrolAnswer> {
  for (;;) {
    const leftMs = deadline - performance.now();
    if (leftMs <= 0) throw new DeadlineError("the pool did not answer the enrolment in time", { sandbox });
    try {
      const options = { timeoutMs: Math.min(ANSWER_MS, Math.ceil(leftMs)) };
      const message = await link.request("pool", enrolSubject(tenant, sandbox), body, options);
      return parseAnswer(EnrolAnswer, message.data);
    } catch (thrown) {
      const { code } = toSandmeshError(thrown);
      const again = code === "unreachable" || code === "deadline_exceeded" || code === "pool_unavailable";
      if (!again && !(thrown instanceof ConnectionError)) throw thrown;
      if (code !== "deadline_exceeded") await new Promise((go) => setTimeout(go, RETRY_MS));
    }
  }
}
