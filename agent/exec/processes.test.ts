// Looks at all processes that are shared. That a command's tree is found whole by them: ending.test.ts.
import { expect, spyOn, test } from "bun:test";
import { Looks, Processes, readProcesses } from "./processes.ts";
import { begin, testCommands } from "./testing.ts";

test("hundreds of time limits that come at once, without cgroups, look together: each by itself kept the daemon from all else for seconds", async () => {
  const commands = await testCommands();
  const tree = spyOn(Processes.prototype, "tree");
  const looked = () => new Set(tree.mock.contexts).size;
  try {
    const request = { argv: ["sleep", "71"], timeout_ms: 1500, grace_ms: 20_000 };
    const running = Array.from({ length: 200 }, () => begin(commands, request));
    const outcomes = (await Promise.all(running.map(({ ended }) => ended))).map(({ outcome }) => outcome);
    const ended = { type: "timed_out", after_ms: 1500, killed: 1, signal: "SIGTERM" } as const;
    expect(outcomes).toEqual(running.map(() => ended));
    expect(tree.mock.calls.length).toBeGreaterThanOrEqual(running.length);
    // How many looks that is depends on how many end between two of them.
    expect(looked()).toBeLessThan(running.length / 2);
    const before = looked();
    await Promise.all(running.map(({ command }) => command.background()));
    expect(looked()).toBe(before + 1);
  } finally {
    tree.mockRestore();
  }
}, 60_000);

test("nobody is given a look from before it asked, which would miss what has been started since", async () => {
  let taken = 0;
  const looks = new Looks(() => new Processes([{ pid: ++taken, parent: 0, session: 0, ids: [] }]));
  const look = async () => (await looks.next()).below(0);
  expect(await Promise.all([look(), look()])).toEqual([[1], [1]]);
  const within = looks.next().then(() => Promise.all([look(), look()]));
  expect(await within).toEqual([[3], [3]]);
});

test("without a descriptor to look with it looks again, and takes nobody for ended", async () => {
  let left = 0;
  const looks = new Looks(() => {
    if (left++ < 2) throw Object.assign(new Error("too many open files"), { code: "EMFILE" });
    return new Processes([{ pid: 7, parent: 1, session: 7, ids: ["mine"] }]);
  });
  const [mine, others] = await Promise.all([looks.next(), looks.next()]);
  expect([mine?.tree("mine", 5), others?.tree("yours", 5)]).toEqual([[7], []]);
});

test("the marker is found wherever it stands in the environment, and not where another's name or value ends like it", async () => {
  const env = (entries: string[]) => ["env", "-i", ...entries, "sleep", "71"];
  const children = [
    env(["SANDMESH_COMMAND=a", "X=1"]),
    env(["X=1", "SANDMESH_COMMAND=b"]),
    env(["NO_SANDMESH_COMMAND=c", "X=SANDMESH_COMMAND=c"]),
  ].map((argv) => Bun.spawn(argv, { stdio: ["ignore", null, null] }));
  try {
    const find = (id: string) => new Processes(readProcesses()).tree(id, -1);
    const [a, b] = children.map(({ pid }) => pid);
    while (find("a").length + find("b").length < 2) await Bun.sleep(5);
    expect([find("a"), find("b"), find("c")]).toEqual([[a], [b], []] as number[][]);
  } finally {
    for (const child of children) child.kill("SIGKILL");
  }
});
