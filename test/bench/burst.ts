// `bash test/bench/burst [--json] [N [CLIENTS]] [--placement scheduler|direct] [--rounds R] [--end kill|exit] [--once]
// [--no-plain]`: N sandboxes at once, by CLIENTS processes, on a real API server and scheduler. Each round is plain pods, plain
// pods with daemons twice, and ours twice, cold and warm; in the rounds by turns the clients are killed at the end, or leave
// orderly, or do what --end says in all. What is told is the mean over the rounds. For numbers where each takes minutes:
// --once, no second bursts; --no-plain, none of pods without daemons.

import { progress, round } from "./bench.ts";
import type { Cpu } from "./burst-account.ts";
import { BOOT } from "./burst-boot.ts";
import { kubectl } from "./burst-kubectl.ts";
import { type BurstOptions, ourBurst } from "./burst-ours.ts";
import { type Floor, plainBurst, type WiredFloor, wiredBursts } from "./burst-plain.ts";
import { inTime } from "./burst-wait.ts";

const USAGE =
  "burst [--json] [N [CLIENTS]] [--placement scheduler|direct] [--rounds R] [--end kill|exit] [--once] [--no-plain]";
/** As test/cluster/kwok makes them. */
const PODS_A_NODE = 500;
/** Longer than all its parts may take; something is broken that none of them foresees. */
const ALL_MS = 2 * 3600_000;

function parsed() {
  const numbers: number[] = [];
  let placement: BurstOptions["placement"] = "scheduler";
  let rounds = 2;
  let end: BurstOptions["end"] | undefined;
  const flags = { "--once": false, "--no-plain": false };
  for (let words = process.argv.slice(2); words.length > 0; ) {
    const [word = "", ...rest] = words;
    const [next = ""] = rest;
    words = ["--placement", "--rounds", "--end"].includes(word) ? rest.slice(1) : rest;
    if (word === "--json") continue;
    if (word === "--once" || word === "--no-plain") flags[word] = true;
    else if (word === "--placement" && (next === "scheduler" || next === "direct")) placement = next;
    else if (word === "--end" && (next === "kill" || next === "exit")) end = next;
    else if (word === "--rounds" && /^[1-9]\d*$/.test(next)) rounds = Number(next);
    else if (/^[1-9]\d*$/.test(word) && numbers.length < 2) numbers.push(Number(word));
    else throw new Error(`cannot read ${word} ${next}; usage: ${USAGE}`);
  }
  const [n = 500, clients = 8] = numbers;
  return { n, clients, placement, rounds, end, once: flags["--once"], noPlain: flags["--no-plain"] };
}

async function roomFor(n: number): Promise<void> {
  const nodes = (await kubectl("get", "nodes", "-l", "type=kwok", "-o", "name")).split("\n").filter(Boolean);
  if (nodes.length * PODS_A_NODE >= n) return;
  throw new Error(
    `${nodes.length} fake nodes have no room for ${n} pods: up --kwok-nodes ${Math.ceil(n / 400)}`,
  );
}

const mean = (values: readonly number[]): number =>
  round(values.reduce((sum, each) => sum + each, 0) / values.length, 2);
const sum = (values: readonly number[]): number => values.reduce((all, each) => all + each, 0);

/** Of what only some rounds have. */
const ifAny = (values: readonly number[], of: (values: readonly number[]) => number): number | undefined =>
  values.length === 0 ? undefined : of(values);

/** CPU seconds of all programs in all rounds: where cores are shared with others, they say more than the time it took. */
const cpuOf = (bursts: readonly { cpu: Cpu }[]): number =>
  sum(bursts.flatMap(({ cpu }) => Object.values(cpu)));

/** The same of the cluster's own programs: what decides where pool, daemons and clients have cores of their own. */
const CLUSTERS_OWN = ["apiserver", "etcd", "scheduler", "controller-manager", "kwok"];
const clusterCpuOf = (bursts: readonly { cpu: Cpu }[]): number =>
  sum(bursts.flatMap(({ cpu }) => CLUSTERS_OWN.map((name) => cpu[name] ?? 0)));

/** Ours by the wired floor, and by that with a first no-op in each, as ours have. */
function ratios(ours: readonly { allS: number; cpu: Cpu }[], wired: readonly WiredFloor[]) {
  const used = wired.map((each) => each.used);
  const secondsOf = (all: readonly { allS: number }[]) => sum(all.map(({ allS }) => allS));
  return {
    ratio: round(secondsOf(ours) / secondsOf(wired), 2),
    ratio_used: round(secondsOf(ours) / secondsOf(used), 2),
    cpu_ratio: round(cpuOf(ours) / cpuOf(wired), 2),
    cpu_ratio_used: round(cpuOf(ours) / cpuOf(used), 2),
    cluster_cpu_ratio: round(clusterCpuOf(ours) / clusterCpuOf(wired), 2),
  };
}

async function burst() {
  const { n, clients, placement, rounds, end, once, noPlain } = parsed();
  await roomFor(n);
  const plain: Floor[] = [];
  const wired: WiredFloor[] = [];
  const wiredAgain: WiredFloor[] = [];
  const ours: Awaited<ReturnType<typeof ourBurst>>[] = [];
  for (let i = 0; i < rounds; i++) {
    progress(`round ${i + 1} of ${rounds}`);
    if (!noPlain) {
      progress(`  ${n} plain pods`);
      plain.push(await plainBurst(n));
      progress(`  ${JSON.stringify(plain.at(-1))}`);
    }
    progress(`  ${n} plain pods with daemons`);
    const [cold, warm] = await wiredBursts(n, once);
    wired.push(cold);
    if (warm !== undefined) wiredAgain.push(warm);
    progress(`  ${JSON.stringify([cold, warm])}; ${n} sandboxes for ${clients} clients`);
    ours.push(await ourBurst({ n, clients, placement, once, end: end ?? (i % 2 === 0 ? "kill" : "exit") }));
    progress(`  ${JSON.stringify(ours.at(-1))}`);
  }
  type Ours = (typeof ours)[number];
  const of = (pick: (each: Ours) => number | undefined): number[] =>
    ours.map(pick).filter((each) => each !== undefined);
  const seconds = (floors: readonly Pick<Floor, "allS">[]) => floors.map(({ allS }) => round(allS, 2));
  const plainS = noPlain ? undefined : mean(seconds(plain));
  const wiredS = mean(seconds(wired));
  const allS = mean(of((each) => each.all_s));
  const oursAgain = ours.flatMap(({ again }) => again ?? []);
  const again = once ? undefined : ratios(oursAgain, wiredAgain);
  return {
    n,
    clients,
    placement,
    floor_all_s: plainS,
    floor_wired_all_s: wiredS,
    floor_used_all_s: mean(seconds(wired.map(({ used }) => used))),
    half_s: mean(of((each) => each.half_s)),
    all_s: allS,
    ...ratios(
      ours.map((each) => ({ allS: each.all_s, cpu: each.cpu })),
      wired,
    ),
    ratio_plain: plainS && round(allS / plainS, 2),
    writes_ours_per_sandbox: mean(of((each) => each.writes_ours_per_sandbox)),
    writes_all_per_sandbox: mean(of((each) => each.writes_all_per_sandbox)),
    lost: sum(of((each) => each.lost)),
    double: sum(of((each) => each.double)),
    left: sum(of((each) => each.left)),
    zero_after_kill_s: ifAny(
      of((each) => each.zero_after_kill_s),
      mean,
    ),
    left_at_exit: ifAny(
      of((each) => each.left_at_exit),
      sum,
    ),
    rounds,
    boot_median_ms: BOOT.bootMedianMs,
    boot_sigma: BOOT.bootSpread,
    floors_s: seconds(plain),
    floors_wired_s: seconds(wired),
    alls_s: of((each) => each.all_s),
    again_floors_wired_s: seconds(wiredAgain),
    again_floors_used_s: seconds(wiredAgain.map(({ used }) => used)),
    again_alls_s: seconds(oursAgain),
    again_ratio: again?.ratio,
    again_ratio_used: again?.ratio_used,
    again_cpu_ratio: again?.cpu_ratio,
    again_cpu_ratio_used: again?.cpu_ratio_used,
    again_cluster_cpu_ratio: again?.cluster_cpu_ratio,
    cpu_ratio_plain: noPlain ? undefined : round(cpuOf(ours) / cpuOf(plain), 2),
    cluster_cpu_ratio_plain: noPlain ? undefined : round(clusterCpuOf(ours) / clusterCpuOf(plain), 2),
    cpu_s: ours.at(-1)?.cpu,
    again_cpu_s: oursAgain.at(-1)?.cpu,
    end_cpu_s: ours.at(-1)?.end_cpu,
    wired_cpu_s: wired.at(-1)?.cpu,
    again_wired_cpu_s: wiredAgain.at(-1)?.cpu,
    again_used_cpu_s: wiredAgain.at(-1)?.used.cpu,
    plain_cpu_s: plain.at(-1)?.cpu,
  };
}

const result = await inTime("the burst", ALL_MS, burst());
process.stdout.write(`${JSON.stringify(result)}\n`);
const { lost, double, left, left_at_exit = 0 } = result;
process.exit(lost + double + left + left_at_exit > 0 ? 1 : 0);
