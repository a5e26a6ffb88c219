// `sandmesh up` in whatever folder: named by any bytes, deep, or behind links.
import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdir, mkdtemp, realpath, rm, symlink } from "node:fs/promises";
import { join } from "node:path";
import { down } from "../../deploy/local/up.ts";
import { PROGRAM, PROGRAM_WORDS, type Ran, run } from "./program.ts";

const NOTHING_LEFT = "left behind: 0 sandboxes, 0 processes, 0 mounts, 0 leases\n";

let folder: string;
const homes = new Set<string>();
beforeEach(async () => {
  // Not below /tmp, which image host has anew.
  folder = await realpath(await mkdtemp("/var/tmp/sandmesh-homes-"));
});
afterEach(async () => {
  for (const home of homes) await down(home).catch(() => undefined);
  homes.clear();
  await rm(folder, { recursive: true, force: true });
});

const sandmeshIn = (home: string, ...args: string[]): Promise<Ran> => {
  homes.add(home);
  return run([...PROGRAM, ...args], { env: { SANDMESH_HOME: home } });
};

test.each([
  ["what shells and files of settings read", `' "$HOME" \${x} %s a,b:c=d #e;f *?[1] ~&|<>()! \`g\``],
  ["a backslash", "back\\slash\\x41"],
  ["line ends and other control characters", "new\nline\r\t\b\f\u0001\u007f"],
  ["other scripts and emoji", "ünïcode ☃ 😀"],
  ["more bytes than a unix socket's name may have", join(..."abcde".split("").map((c) => c.repeat(200)))],
])(
  "a home whose path has %s works as any other",
  async (_, name) => {
    const home = join(folder, name);
    const up = await sandmeshIn(home, "--json", "up");
    expect([up.code, up.stderr]).toEqual([0, ""]);
    expect(JSON.parse(up.stdout).credentials).toBe(join(home, "credentials.creds"));
    const ran = await sandmeshIn(home, "run", "host", "--", "echo", "works");
    expect([ran.stdout, ran.stderr]).toEqual(["works\n", ""]);
    expect((await sandmeshIn(home, "acquire", "host")).code).toBe(0);
    expect((await sandmeshIn(home, "down")).stdout).toBe(NOTHING_LEFT);
  },
  60_000,
);

test("a home behind links is the folder that they lead to: sandboxes work, and every path to it is the same mesh's", async () => {
  const real = join(folder, "disk", "home");
  await symlink(join(folder, "disk"), join(folder, "absolute"));
  await symlink("disk", join(folder, "relative"));
  await symlink(real, join(folder, "dangling"));
  const others = [join(folder, "relative", "home"), real];
  for (const link of [join(folder, "dangling"), join(folder, "absolute", "home")]) {
    const up = await sandmeshIn(link, "--json", "up");
    expect(JSON.parse(up.stdout)).toMatchObject({
      already: false,
      credentials: join(real, "credentials.creds"),
    });
    expect((await sandmeshIn(link, "run", "host", "--", "echo", "works")).stdout).toBe("works\n");
    for (const other of others) {
      expect(JSON.parse((await sandmeshIn(other, "--json", "up")).stdout)).toMatchObject({ already: true });
      expect((await sandmeshIn(other, "run", "host", "--", "echo", "works")).stdout).toBe("works\n");
    }
    expect((await sandmeshIn(real, "down")).stdout).toBe(NOTHING_LEFT);
    expect((await sandmeshIn(link, "down")).stderr).toContain(`no mesh is up in ${real}`);
  }
}, 60_000);

test("no volume leads to the keys of a mesh whose home is behind a link, nor of one whose is not", async () => {
  const real = join(folder, "disk", "home");
  await mkdir(real, { recursive: true });
  await symlink(join(folder, "disk"), join(folder, "link"));
  for (const home of [join(folder, "link", "home"), real]) {
    expect((await sandmeshIn(home, "up")).code).toBe(0);
    for (const source of [real, join(real, "nats"), join(real, "pool"), join(folder, "disk"), home]) {
      const ran = await sandmeshIn(home, "run", "-v", `${source}:/mnt`, "host", "--", "ls", "-A", "/mnt");
      expect([ran.code, ran.stdout]).toEqual([125, ""]);
      expect(ran.stderr).toContain("the mesh's own state folder");
    }
    expect((await sandmeshIn(home, "down")).stdout).toBe(NOTHING_LEFT);
  }
}, 60_000);

test("a home that is not named in UTF-8 is refused, and no other folder is taken for it", async () => {
  const line = `SANDMESH_HOME=${folder}/$(printf 'a\\377b') ${PROGRAM_WORDS}`;
  for (const command of ["up", "ps", "down"]) {
    const ran = await run(["bash", "-c", `${line} ${command}`]);
    expect([ran.code, ran.stderr]).toEqual([2, expect.stringContaining("must be named in UTF-8")]);
  }
  expect((await run(["ls", "-A", folder])).stdout).toBe("");
});
