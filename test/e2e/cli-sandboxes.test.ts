// The command line: sandboxes that are kept, and what happens to them.
import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import { onOneMesh } from "./one-mesh.ts";
import { eventually, PROGRAM, ROOT } from "./program.ts";

const here = onOneMesh();

describe("a sandbox that is kept", () => {
  test("files and background processes live from one exec to the next", async () => {
    const id = await here.acquired();
    await here.sandmesh("exec", id, "--", "sh -c 'echo kept > /tmp/f; sleep 321 > /dev/null 2>&1 &'");
    expect((await here.sandmesh("exec", id, "--", "cat", "/tmp/f")).stdout).toBe("kept\n");
    expect((await here.sandmesh("exec", id, "--", "pgrep -f 'sleep 32[1]' | wc -l")).stdout.trim()).toBe("1");
    expect((await here.sandmesh("release", id)).stdout).toContain("released 1");
  });

  test("ps shows it until it is released, and release by run ends all of the run", async () => {
    const first = (await here.sandmesh("acquire", "--run", "cli-run", "host")).stdout.trim();
    const second = (await here.sandmesh("acquire", "--run", "cli-run", "host")).stdout.trim();
    const ids = (await here.sandmesh("ps", "--run", "cli-run", "--ids")).stdout.trim().split("\n");
    expect(ids.sort()).toEqual([first, second].sort());
    expect(JSON.parse((await here.sandmesh("--json", "renew", first, "--lease", "2h")).stdout)).toMatchObject(
      {
        run: "cli-run",
        sandboxes: 2,
      },
    );
    await here.sandmesh("release", "--run", "cli-run");
    expect((await here.sandmesh("ps", "--run", "cli-run", "--ids")).stdout.trim()).toBe("");
  });

  test("a nats context is written for what is there only", async () => {
    const config = join(here.scratch, "config");
    const ran = await here.sandmeshWith({ env: { XDG_CONFIG_HOME: config } }, "context", "foo");
    expect([ran.code, ran.stderr]).toEqual([3, "sandmesh: not_found: there is no sandbox foo\n"]);
    expect(await Bun.file(join(config, "nats", "context", "sandmesh-foo.json")).exists()).toBe(false);
  });

  test("a released or unknown sandbox is a typed error, in time", async () => {
    const ran = await here.sandmesh("exec", "sb-0000000000000", "--", "true");
    expect(ran.code).toBe(125);
    expect(ran.stderr).toBe("sandmesh: not_found: there is no sandbox sb-0000000000000\n");
    const id = await here.acquired();
    await here.sandmesh("release", id);
    const late = await here.sandmesh("logs", id);
    expect([late.code, late.stderr]).toEqual([
      3,
      `sandmesh: sandbox_lost: sandbox ${id} is not there any more (released)\n`,
    ]);
  });

  test("release of what never was is 3 and says so, and of what is gone already it is fine", async () => {
    const id = await here.acquired();
    expect((await here.sandmesh("release", id)).stdout).toBe("released 1\n");
    expect(await here.sandmesh("release", id)).toMatchObject({ code: 0, stdout: "released 0\n" });
    const other = await here.acquired();
    const ran = await here.sandmesh("release", "sb-0000000000000", other);
    expect([ran.code, ran.stderr]).toEqual([
      3,
      expect.stringContaining("not_found: there is no sandbox sb-0000000000000"),
    ]);
    expect((await here.sandmesh("ps", "--ids")).stdout).not.toContain(other);
  });

  test("of what is not there every command says so, with 3, or 125 where the code is a command's", async () => {
    const file = join(here.scratch, "x");
    const wrong: [code: number, ...words: string[]][] = [
      [3, "logs", "nosuch"],
      [3, "logs", "-l", "nosuch"],
      [3, "cp", "nosuch:/a", file],
      [3, "cp", import.meta.path, "nosuch:/a"],
      [3, "context", "nosuch"],
      [3, "release", "nosuch"],
      [125, "shell", "nosuch"],
    ];
    const ran = await Promise.all(
      wrong.map(async ([, ...words]) => {
        const { code, stderr } = await here.sandmesh(...words);
        return [words, code, stderr];
      }),
    );
    expect(ran).toEqual(
      wrong.map(([code, ...words]) => [words, code, "sandmesh: not_found: there is no sandbox nosuch\n"]),
    );
    expect((await here.sandmesh("renew", "nosuch")).code).toBe(3);
    const gone = (await here.sandmesh("acquire", "host")).stdout.trim();
    await here.sandmesh("release", gone);
    expect((await here.sandmesh("renew", gone)).stderr).toContain(`${gone} is not there any more (released)`);
  });

  test("drain is refused to users with words, and an operator drains, and takes that back", async () => {
    const refused = await here.sandmesh("--json", "drain", "--release-all");
    expect(refused.code).toBe(1);
    expect(JSON.parse(refused.stdout)).toMatchObject({
      error: { code: "permission_denied", reason: "publish" },
    });
    expect(refused.stderr).toContain("only an operator may drain the pool");
    const asOperator = ["drain", "--creds", join(here.home, "operator.creds")];
    expect((await here.sandmesh(...asOperator)).stdout).toMatch(/^draining, \d+ sandbox(es)? left\n$/);
    try {
      expect((await here.sandmesh("acquire", "host")).stderr).toContain("draining");
    } finally {
      expect(JSON.parse((await here.sandmesh("--json", ...asOperator, "--off")).stdout).draining).toBe(false);
    }
    await here.acquired();
  });

  test("a run that never was is 3, what is no id is wrong usage, and limits are told by the option", async () => {
    const run = await here.sandmesh("release", "--run", "nosuch");
    expect([run.code, run.stderr]).toEqual([3, "sandmesh: not_found: there is no run nosuch\n"]);
    const context = await here.sandmesh("context", "a*");
    expect([context.code, context.stderr]).toEqual([
      2,
      expect.stringContaining("sandmesh: invalid_request: "),
    ]);
    for (const [option, value, least] of [
      ["--lease", "0", "1s"],
      ["--memory", "1k", "16m"],
      ["--disk", "1k", "1m"],
      ["--pids", "0", "16"],
    ] as const) {
      const ran = await here.sandmesh("acquire", option, value, "host");
      expect([ran.code, ran.stderr]).toEqual([2, expect.stringContaining(option)]);
      expect(ran.stderr).toContain(`must be at least ${least}`);
    }
  });

  test("release counts a sandbox once, whether it is named twice or is one of the named run", async () => {
    const [one, two, three, four] = await Promise.all(
      ["cli-once", "cli-once", "cli-other", "cli-other"].map(async (run) =>
        (await here.sandmesh("acquire", "--run", run, "host")).stdout.trim(),
      ),
    );
    const refused = await here.sandmesh("release", "--all", "--run", "cli-once");
    expect([refused.code, refused.stdout]).toEqual([2, ""]);
    const ids = (await here.sandmesh("--json", "ps", "--ids")).stdout;
    expect(JSON.parse(ids)).toEqual(expect.arrayContaining([one, two, three, four]));
    const words = [one, one, three, "--run", "cli-once"].map(String);
    const ran = await here.sandmesh("--json", "release", ...words);
    expect(JSON.parse(ran.stdout)).toEqual({
      released: 3,
      results: [
        { sandbox: three, released: 1 },
        { run: "cli-once", released: 2 },
      ],
    });
    expect((await here.sandmesh("release", `${four}`, `${four}`)).stdout).toBe("released 1\n");
  });

  test("release --json tells of each what became of it, also where one never was", async () => {
    const id = await here.acquired();
    const ran = await here.sandmesh("release", "--json", id, "nosuch");
    expect([ran.code, JSON.parse(ran.stdout)]).toMatchObject([
      3,
      {
        released: 1,
        results: [
          { sandbox: id, released: 1 },
          { sandbox: "nosuch", released: 0, error: { code: "not_found" } },
        ],
      },
    ]);
  });

  test("acquire -n answers that many, an id a line, of one run; with --json a list", async () => {
    const ran = await here.sandmesh("acquire", "-n", "3", "--run", "many", "host");
    const ids = ran.stdout.trimEnd().split("\n");
    expect([ran.code, new Set(ids).size]).toEqual([0, 3]);
    expect(JSON.parse((await here.sandmesh("--json", "ps", "--run", "many")).stdout)).toHaveLength(3);
    const json = JSON.parse(
      (await here.sandmesh("acquire", "--json", "-n", "1", "--run", "many", "host")).stdout,
    );
    expect(json).toMatchObject([{ sandbox: expect.stringMatching(/^sb-/), run: "many" }]);
    await here.sandmesh("release", "--run", "many");
  });

  test("a name of a registry is told from a path that is not there, and what is possible here", async () => {
    const named = await here.sandmesh("run", "debian:bookworm", "true");
    expect(named.stderr).toMatch(
      /names of a registry are for the Kubernetes provider.*Here it may be `host`/,
    );
    const path = await here.sandmesh("run", "./no-such-rootfs", "true");
    expect(path.stderr).toContain(`image ${join(ROOT, "no-such-rootfs")}: no such file or folder`);
  });
});

describe("events", () => {
  test("a sandbox's life comes as lines, of the kinds that are asked for, until Ctrl-C", async () => {
    const watch = (...flags: string[]) =>
      Bun.spawn([...PROGRAM, "events", "--run", "watched", ...flags], {
        env: { ...process.env, SANDMESH_HOME: here.home },
        stdout: "pipe",
        stderr: "pipe",
      });
    const [json, text] = [watch("--json", "--what", "leased", "released"), watch()];
    const outputs = [json, text].map((child) => {
      const output = { text: "" };
      void (async () => {
        for await (const part of child.stdout) output.text += Buffer.from(part).toString();
      })();
      return output;
    });
    let id = "";
    await eventually("both have told of one", async () => {
      id = (await here.sandmesh("acquire", "--run", "watched", "host")).stdout.trim();
      await here.sandmesh("release", id);
      // Who began to watch in between has heard of its end alone.
      const [first, second] = outputs.map((output) => output.text);
      return /"leased".*"released"/s.test(first ?? "") && new RegExp(`granted +${id}`).test(second ?? "");
    });
    for (const child of [json, text]) child.kill("SIGINT");
    expect(await Promise.all([json.exited, text.exited])).toEqual([0, 0]);
    const lines =
      outputs[0]?.text
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line)) ?? [];
    expect(new Set(lines.map(({ what }) => what))).toEqual(new Set(["leased", "released"]));
    expect(lines.every(({ run }) => run === "watched")).toBe(true);
    expect(outputs[1]?.text).toMatch(
      new RegExp(`^\\d\\d:\\d\\d:\\d\\d\\.\\d{3}  granted +${id}  watched`, "m"),
    );
    expect(await new Response(text.stderr).text()).toBe("");
  });
});
