// `bun test/chaos/soak.ts [--count N] [--seconds S] [--load N] [--seed N]`: commands of all kinds against one daemon, by
// turns in a row and 32 at a time, until both numbers are reached (100,000 and 0 by default), beside N busy loops. A
// watchdog ends it where nothing has ended for 10 s, and prints what daemon, threads and commands were doing. One JSON
// line on stdout; exit code 1 for a hang, a wrong answer, or memory, descriptors or zombies left.
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { buildDaemon } from "../../agent/build.ts";
import { type TestDaemon, testMesh } from "../../agent/testing.ts";
import { type EndFrame, newUuidV7 } from "../../broker/contract/index.ts";
import { testServer } from "../../broker/server/testing.ts";

const STALL_MS = 10_000;
const WIDTH = 32;
/** Commands of one turn, in a row or at once. */
const TURN = 500;
/** Beyond this the daemon's memory has grown: it holds 2,000 ended commands before it is first measured. What it keeps of
 * outputs goes up and down with the last 1,000 commands' kinds, and garbage with its collector: so floors are compared,
 * the least of some turns each. */
const GROWTH_MIB = 8;
const WARM_UP = 4_000;
/** Longer than any of these runs. */
const LIFE_MS = 86_400_000;
const FLOOR_TURNS = 8;

const { values } = parseArgs({
  options: {
    count: { type: "string", default: "100000" },
    seconds: { type: "string", default: "0" },
    load: { type: "string", default: "0" },
    seed: { type: "string", default: "1" },
  },
});
const count = Number(values.count);
const seconds = Number(values.seconds);

/** Mulberry32: the same seed gives the same commands. */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}

interface Kind {
  share: number;
  request(n: number): Record<string, unknown>;
  /** What is wrong with the answer; undefined where it is right. */
  wrong(end: EndFrame, n: number): unknown;
}
const text = (data: Uint8Array | undefined): string => Buffer.from(data ?? []).toString();
const exits = (end: EndFrame, code: number): boolean =>
  end.outcome.type === "exited" && end.outcome.code === code;
const LARGE_BYTES = 200_000;

const KINDS: Kind[] = [
  { share: 50, request: () => ({ argv: ["/bin/true"] }), wrong: (end) => !exits(end, 0) },
  {
    share: 12,
    request: (n) => ({ shell: `echo ${n}; exit ${n % 256}` }),
    wrong: (end, n) => !exits(end, n % 256) || text(end.stdout) !== `${n}\n`,
  },
  {
    share: 12,
    request: (n) => ({ session: "s", shell: `echo ${n}` }),
    wrong: (end, n) => !exits(end, 0) || text(end.stdout) !== `${n}\n`,
  },
  {
    share: 6,
    request: (n) => ({ argv: ["cat"], stdin: Buffer.alloc(LARGE_BYTES, n % 251) }),
    wrong: (end, n) => Buffer.alloc(LARGE_BYTES, n % 251).compare(Buffer.from(end.stdout ?? [])) !== 0,
  },
  {
    share: 6,
    request: () => ({ argv: ["/no/such/program"] }),
    wrong: (end) => end.outcome.type !== "not_started",
  },
  {
    share: 6,
    request: () => ({ shell: "sleep 0.2 & echo up", merge: true }),
    wrong: (end) => !exits(end, 0) || text(end.stdout) !== "up\n",
  },
  {
    share: 4,
    request: () => ({ shell: "(setsid sleep 30 &); sleep 30", timeout_ms: 30, grace_ms: 20 }),
    wrong: (end) => end.outcome.type !== "timed_out",
  },
  {
    share: 2,
    request: () => ({ argv: ["sh", "-c", "tty >/dev/null && echo terminal"], pty: { rows: 5, cols: 50 } }),
    wrong: (end) => text(end.stdout) !== "terminal\r\n",
  },
  {
    share: 2,
    request: () => ({ shell: "kill -9 $$" }),
    wrong: (end) => end.outcome.type !== "signaled",
  },
];
const SHARES = KINDS.reduce((sum, { share }) => sum + share, 0);

function pick(chance: number): Kind {
  let left = chance * SHARES;
  for (const kind of KINDS) {
    left -= kind.share;
    if (left < 0) return kind;
  }
  return KINDS[0] as Kind;
}

const read = (path: string): string => {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    return "";
  }
};
const list = (path: string): string[] => {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
};

function privateMib(pid: number): number {
  return Number(/^Private_Dirty:\s+(\d+) kB/m.exec(read(`/proc/${pid}/smaps_rollup`))?.[1]) / 1024;
}

function children(pid: number): { pid: string; state: string; line: string }[] {
  return list("/proc").flatMap((name) => {
    const stat = /^\d+$/.test(name) ? read(`/proc/${name}/stat`) : "";
    const [state = "", parent] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    const line = read(`/proc/${name}/cmdline`).replaceAll("\0", " ").slice(0, 120);
    return parent === String(pid) ? [{ pid: name, state, line }] : [];
  });
}

/** Everything that tells a stuck daemon from a stuck client. */
async function dump(daemon: TestDaemon): Promise<void> {
  const { pid } = daemon;
  const say = (...words: unknown[]): void => console.error(...words);
  for (const task of list(`/proc/${pid}/task`)) {
    const at = `/proc/${pid}/task/${task}`;
    say(`thread ${task} ${read(`${at}/comm`)}: ${/^State.*$/m.exec(read(`${at}/status`))?.[0]}`);
    say(`  waits in ${read(`${at}/wchan`)}; system call ${read(`${at}/syscall`)}`);
    say(read(`${at}/stack`).replace(/^/gm, "    "));
  }
  for (const child of children(pid)) say("child", child);
  for (const fd of list(`/proc/${pid}/fd`)) {
    try {
      say(
        `fd ${fd} ${readlinkSync(`/proc/${pid}/fd/${fd}`)} ${read(`/proc/${pid}/fdinfo/${fd}`).replaceAll("\n", " ")}`,
      );
    } catch {
      // Closed meanwhile.
    }
  }
  const answers = [daemon.request("ping", {}), daemon.request("commands", {})];
  say("ping and commands:", JSON.stringify(await Promise.allSettled(answers)));
}

const folder = buildDaemon();
await using mesh = await testMesh(await testServer());
const daemon = await mesh.start({ argv: [join(folder, "sandmesh-agent")], lifeMs: LIFE_MS });
await daemon.request("session_open", { session: "s" });
const burners = Array.from({ length: Number(values.load) }, () =>
  Bun.spawn(["sh", "-c", "while :; do :; done"], { stdout: "ignore" }),
);
const chance = random(Number(values.seed));
let done = 0;
let slowestMs = 0;
let lastAt = performance.now();
const wrong: string[] = [];

async function one(): Promise<void> {
  const n = Math.floor(chance() * 1_000_000);
  const kind = pick(chance());
  const began = performance.now();
  const id = newUuidV7();
  const end = await daemon.exec({ id, ...kind.request(n) });
  lastAt = performance.now();
  slowestMs = Math.max(slowestMs, lastAt - began);
  done++;
  if (kind.wrong(end, n))
    wrong.push(
      `${id} ${JSON.stringify({ ...kind.request(n), stdin: undefined })} ${JSON.stringify(end.outcome)}`,
    );
}

async function turn(width: number): Promise<void> {
  let left = TURN;
  await Promise.all(
    Array.from({ length: width }, async () => {
      while (left-- > 0) await one();
    }),
  );
}

const hung = Promise.withResolvers<never>();
const watchdog = setInterval(() => {
  if (performance.now() - lastAt < STALL_MS) return;
  clearInterval(watchdog);
  void dump(daemon).finally(() => hung.reject(new Error(`nothing has ended for ${STALL_MS} ms`)));
}, 1000);

void daemon.exited.then(async (code) =>
  hung.reject(new Error(`the daemon ended with ${code}: ${await daemon.stderr}`)),
);

const began = performance.now();
const elapsedS = (): number => (performance.now() - began) / 1000;
/** After each turn since the warm-up, MiB. */
const memory: number[] = [];
let fds = 0;
async function soak(): Promise<void> {
  for (let i = 0; done < count || elapsedS() < seconds; i++) {
    await turn(i % 2 === 0 ? 1 : WIDTH);
    if (done >= Math.min(WARM_UP, count / 2)) {
      if (memory.length === 0) fds = list(`/proc/${daemon.pid}/fd`).length;
      memory.push(privateMib(daemon.pid));
    }
    if (i % 10 === 9)
      console.error(
        `  ${done} commands, ${elapsedS().toFixed(0)} s, slowest ${slowestMs.toFixed(0)} ms, ${privateMib(daemon.pid).toFixed(1)} MiB`,
      );
  }
}

let failure: string | undefined;
try {
  await Promise.race([soak(), hung.promise]);
} catch (error) {
  failure = String(error);
} finally {
  clearInterval(watchdog);
  for (const burner of burners) burner.kill("SIGKILL");
}
// Orphans of the last turn end within their fifth of a second, and are reaped.
const zombies = (): number => children(daemon.pid).filter(({ state }) => state === "Z").length;
const fdsNow = (): number => list(`/proc/${daemon.pid}/fd`).length;
for (let i = 0; i < 100 && failure === undefined && (zombies() > 0 || fdsNow() > fds); i++)
  await Bun.sleep(50);
const floorTurns = Math.min(FLOOR_TURNS, Math.ceil(memory.length / 2));
const growth = Math.min(...memory.slice(-floorTurns)) - Math.min(...memory.slice(0, floorTurns));
const result = {
  commands: done,
  seconds: Math.round(elapsedS()),
  slowest_ms: Math.round(slowestMs),
  wrong: wrong.length,
  private_dirty_growth_mb: Math.round(growth * 10) / 10,
  fds_more: fdsNow() - fds,
  zombies: zombies(),
  ...(failure !== undefined && { failure }),
};
for (const line of wrong.slice(0, 20)) console.error("wrong:", line);
console.log(JSON.stringify(result));
const fine =
  failure === undefined &&
  wrong.length === 0 &&
  growth < GROWTH_MIB &&
  result.fds_more <= 0 &&
  result.zombies === 0;
if (!fine) process.exitCode = 1;
