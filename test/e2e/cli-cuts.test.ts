// The command line, whose connection is cut at one message, and what it sends behind that arrives.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type Cuttable, cuttable } from "../cuttable.ts";
import { onOneMesh } from "./one-mesh.ts";
import { eventually, PROGRAM } from "./program.ts";

const here = onOneMesh();
const FILES = 2_000;
let way: Cuttable | undefined;

beforeAll(async () => {
  way = await cuttable(Number(new URL(here.url).port));
});
afterAll(() => way?.[Symbol.asyncDispose]());

const throughWay = () => ({ SANDMESH_URL: way?.url ?? "", SANDMESH_CREDS: here.credentials });

/** `sandmesh ARGUMENTS…`, cut at its first message of a verb. */
async function cutAt(verb: string, stdin: string | undefined, ...args: string[]) {
  const cut = way?.cutAt(verb);
  const ran = await here.sandmeshWith({ env: throughWay(), ...(stdin !== undefined && { stdin }) }, ...args);
  await cut;
  return ran;
}

test("cp of a folder, of which the first part is lost, copies all of it", async () => {
  const id = await here.acquired();
  const tree = join(here.scratch, "tree");
  await mkdir(tree);
  for (let i = 0; i < FILES; i++) await writeFile(join(tree, `file-${i}`), `${i}`);
  expect(await cutAt("unpack", undefined, "cp", tree, `${id}:/tmp/tree`)).toMatchObject({
    code: 0,
    stderr: "",
  });
  const { stdout } = await here.sandmesh("exec", id, "--", "sh", "-c", "ls /tmp/tree | wc -l");
  expect(Number(stdout)).toBe(FILES);
  await here.sandmesh("release", id);
}, 120_000);

test("exec -i, whose request is lost, gives the command all of its stdin", async () => {
  const id = await here.acquired();
  const stdin = "x".repeat(3_000_000);
  const ran = await cutAt("exec", stdin, "exec", "-i", "--timeout", "20s", id, "--", "wc", "-c");
  expect(ran).toEqual({ code: 0, stdout: `${stdin.length}\n`, stderr: "" });
  await here.sandmesh("release", id);
}, 120_000);

test("events says that some may be missing, where its connection was cut, as a line and as JSON", async () => {
  const watch = (...flags: string[]) => {
    const env = { ...process.env, ...throughWay() };
    const child = Bun.spawn([...PROGRAM, "events", "--what", "released", ...flags], { env, stdout: "pipe" });
    const seen = { child, text: "" };
    void (async () => {
      for await (const part of child.stdout) seen.text += Buffer.from(part).toString();
    })();
    return seen;
  };
  const both = [watch(), watch("--json")];
  await using _ended = {
    async [Symbol.asyncDispose]() {
      for (const { child } of both) child.kill("SIGKILL");
      await Promise.all(both.map(({ child }) => child.exited));
    },
  };
  await eventually("both have told of one", async () => {
    await here.sandmesh("release", await here.acquired());
    return both.every(({ text }) => text.includes("released"));
  });
  way?.cut();
  await eventually("both have told that events are missing", () =>
    both.every(({ text }) => /missed/.test(text)),
  );
  for (const { child } of both) child.kill("SIGINT");
  expect(await Promise.all(both.map(({ child }) => child.exited))).toEqual([0, 0]);
  const [text = "", json = ""] = both.map((seen) => seen.text);
  expect(text).toMatch(
    /^\d\d:\d\d:\d\d\.\d{3} {2}missed +events before this may be missing: see `sandmesh ps`$/m,
  );
  const lines = json
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(lines.filter(({ what }) => what === "missed")).toEqual([{ what: "missed", at: expect.any(String) }]);
}, 120_000);
