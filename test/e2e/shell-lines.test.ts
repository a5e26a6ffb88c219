// The recorded commands of coding agents, each by `bash -c` as a process of its own and as a shell line that a spare shell
// takes (agent/native/spare.c), in sandboxes of the same state.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { RECORDED_ENV as ENV, putFiles } from "../../deploy/replay/replay.ts";
import { loadTrajectories, type Trajectory } from "../../deploy/replay/trajectory.ts";
import { connect, type Mesh, type Sandbox } from "../../sdk/typescript/mod.ts";
import { type LocalMesh, localMesh } from "./program.ts";

const NOW = new Date();
/** Waits for a spare shell, and says its pid; nothing where none comes. */
const SPARE = ["/bin/sh", "-c", "for i in $(seq 200); do pgrep -x sandmesh-spare && exit; sleep 0.01; done"];

let local: LocalMesh;
let mesh: Mesh;
beforeAll(async () => {
  local = await localMesh();
  mesh = await connect({ url: local.url, credentials: local.credentials });
}, 120_000);
afterAll(async () => {
  await mesh.close();
  await local[Symbol.asyncDispose]();
}, 60_000);

/** What a step did, its bytes as latin1 text. */
interface Seen {
  outcome: string;
  stdout: string;
  stderr: string;
  pid: number;
}

async function seen(box: Sandbox, command: string | string[], cwd: string): Promise<Seen> {
  const { outcome, stdout, stderr, pid = 0 } = await box.exec(command, { cwd, env: ENV });
  const text = ({ bytes }: { bytes: Uint8Array }) => Buffer.from(bytes).toString("latin1");
  return { outcome: JSON.stringify(outcome), stdout: text(stdout), stderr: text(stderr), pid };
}

/** Without its own pid, the time of day (files that two runs made within one tick of the clock have the same, to the
 * nanosecond), and what whoever looks at all processes sees of the daemon: the thread that makes spares, a spare that is not
 * yet its shell, which is as closed as the daemon, and one process more, with which `ls -l /` has a wider column of links
 * from the hundredth process on. */
const neutral = (output: string, pid: number | undefined): string =>
  (pid === undefined ? output : output.replaceAll(new RegExp(`\\b${pid}\\b`, "g"), "PID"))
    .replaceAll(/\b\d\d:\d\d(:\d\d(\.\d+)?)?\b/g, "TIME")
    .replaceAll(/\b\d{10}\.\d+\b/g, "TIME")
    .replaceAll(/.*\/proc\/1\/task\/.*\n/g, "")
    .replaceAll(/.*\/proc\/\d+\/(task\/\d+\/)?(fdinfo|map_files)\W+Permission denied\n/g, "")
    .replaceAll(/^(d\S+) +\d+( .* proc)$/gm, "$1$2")
    .replaceAll(/^([-bcdlps][-rwxsStT]{9}\S?) +/gm, "$1 ");
/** Lines in an order of their own; gzip writes one of its in two parts. */
const sorted = (output: string): string =>
  output
    .split(/(?<=[;\n])/)
    .sort()
    .join("");
/** What programs that run at the same time write comes in any order: of a pipeline's that is what they say on stderr. */
const compared = (command: string, { outcome, stdout, stderr }: Seen, pid?: number): string => {
  const ofSeveral = /xargs .*-P/.test(command);
  const [out, err] = [neutral(stdout, pid), neutral(stderr, pid)];
  return [outcome, ofSeveral ? sorted(out) : out, ofSeveral || /[|&]/.test(command) ? sorted(err) : err].join(
    "--\n",
  );
};
/** As they are, or each without its own pid: in a sandbox that is a small number, which may stand in a file as well. */
const same = (command: string, a: Seen, b: Seen): boolean =>
  compared(command, a) === compared(command, b) ||
  compared(command, a, a.pid) === compared(command, b, b.pid);

async function prepare(box: Sandbox, trajectory: Trajectory): Promise<void> {
  await box.files.mkdir(trajectory.cwd);
  await putFiles(box, trajectory, NOW);
}

test("every recorded command does as a shell line what it does by `bash -c`, byte for byte", async () => {
  const spec = { image: "host" };
  await using one = await mesh.acquire(spec);
  await using other = await mesh.acquire(spec);
  await using line = await mesh.acquire(spec);
  const counts = { steps: 0, taken: 0, unsteady: 0 };
  const differ: object[] = [];
  let before: string | undefined;
  for (const trajectory of await loadTrajectories()) {
    await Promise.all([one, other, line].map((box) => prepare(box, trajectory)));
    for (const { command, cwd = trajectory.cwd } of trajectory.steps) {
      const argv = ["/bin/bash", "-c", command];
      // Of a kind with the one before, from which a spare is left.
      if (cwd !== before) for (let i = 0; i < 2; i++) await line.exec(":", { cwd, env: ENV });
      before = cwd;
      const spare = Number((await line.exec(SPARE)).stdout.text);
      const [a, b, c] = await Promise.all([
        seen(one, argv, cwd),
        seen(other, argv, cwd),
        seen(line, command, cwd),
      ]);
      counts.steps++;
      if (c.pid === spare) counts.taken++;
      // What two runs of the same do not agree about says nothing about the third.
      if (!same(command, a, b)) counts.unsteady++;
      else if (!same(command, a, c)) differ.push({ trajectory: trajectory.id, command, a, c });
    }
  }
  console.error(JSON.stringify({ ...counts, differ: differ.length }));
  expect(differ).toEqual([]);
  expect(counts.taken).toBeGreaterThan(counts.steps / 2);
  expect(counts.unsteady).toBeLessThan(counts.steps / 10);
}, 900_000);
