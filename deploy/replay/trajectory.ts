// Recorded trajectories (deploy/workloads): read and checked.
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import * as v from "valibot";

const Header = v.object({
  id: v.string(),
  source_repo: v.string(),
  license: v.string(),
  task: v.string(),
  agent: v.string(),
  shell: v.string(),
  cwd: v.string(),
  fixture: v.optional(v.string()),
});

const Step = v.object({
  command: v.string(),
  argv: v.optional(v.array(v.string())),
  cwd: v.optional(v.string()),
  observed_exit: v.optional(v.number()),
  observed_ok: v.optional(v.boolean()),
  observed_output: v.optional(v.string()),
  observed_output_cut: v.optional(v.unknown()),
  observed_same: v.optional(v.boolean()),
  observed_note: v.optional(v.string()),
});
export type Step = v.InferOutput<typeof Step>;

const Entry = v.object({
  path: v.string(),
  type: v.picklist(["dir", "file", "symlink"]),
  mode: v.optional(v.string()),
  content: v.optional(v.string()),
  content_b64: v.optional(v.string()),
  target: v.optional(v.string()),
  mtime: v.optional(v.union([v.number(), v.string()])),
});
const Fixture = v.object({
  name: v.string(),
  entries: v.array(Entry),
  after: v.optional(v.array(v.string())),
});
export type Fixture = v.InferOutput<typeof Fixture>;

export interface Trajectory extends v.InferOutput<typeof Header> {
  steps: Step[];
  /** Whether cd, variables and functions survive from one step to the next. */
  oneShell: boolean;
}

const WORKLOADS = join(import.meta.dir, "..", "workloads");

export function parseTrajectory(text: string): Trajectory {
  const [head, ...lines] = text.trimEnd().split("\n");
  const header = v.parse(Header, JSON.parse(head ?? ""));
  const steps = lines.map((line) => v.parse(Step, JSON.parse(line)));
  return { ...header, steps, oneShell: header.shell.startsWith("one shell") };
}

/** All trajectories, by id. */
export async function loadTrajectories(folder: string = WORKLOADS): Promise<Trajectory[]> {
  const names = (await readdir(join(folder, "trajectories")))
    .filter((name) => name.endsWith(".jsonl"))
    .sort();
  return Promise.all(
    names.map(async (name) => parseTrajectory(await Bun.file(join(folder, "trajectories", name)).text())),
  );
}

export async function loadFixture(name: string, folder: string = WORKLOADS): Promise<Fixture> {
  return v.parse(Fixture, await Bun.file(join(folder, "fixtures", `${name}.json`)).json());
}
