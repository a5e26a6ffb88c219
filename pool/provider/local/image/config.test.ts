// What an image's configuration says of who runs, where and with what: as container engines take it, or refused by name.
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { join } from "node:path";
import { busyboxEntries, type Entry, makeOciLayout } from "../../../../test/images/images.ts";
import { Bench } from "../testing.ts";

setDefaultTimeout(60_000);

const PASSWD = `root:x:0:0:root:/root:/bin/sh
agent:x:1000:1000:agent:/home/agent:/bin/sh

# no user
short:x:7:8
high:x:4294967290:0::/:/bin/sh
odd:x:many:0::/:/bin/sh
oddgroup:x:5:many::/:/bin/sh
`;
const GROUP = "root:x:0:\nagent:x:1000:\nextra:x:1001:agent\nmany:x:many:agent\nbare:x:1002\n";

describe.if(process.getuid?.() === 0)("an image's configuration", () => {
  let bench: Bench;
  let images = 0;
  const make = async (config: object, more: Entry[] = []) => {
    images += 1;
    const image = join(bench.folder, `oci-${images}`);
    const own: Entry[] = [
      { name: "etc/passwd", content: PASSWD },
      { name: "etc/group", content: GROUP },
    ];
    await makeOciLayout(image, {
      layers: [await busyboxEntries(), [...own, ...more]],
      config: { ...config },
    });
    return image;
  };
  const refusal = async (image: string) => {
    const refused = await bench.create(`sb-no-${images}`, { image }).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: "image_error", retryable: false });
    return String(refused);
  };

  beforeAll(async () => {
    bench = await Bench.make();
  });
  afterAll(async () => {
    await bench[Symbol.asyncDispose]();
  });

  const users: [string, string][] = [
    ["", "0 0 0"],
    ["0", "0 0 0"],
    ["agent", "1000 1000 1000 1001"],
    ["1000", "1000 1000 1000 1001"],
    ["01000", "1000 1000 1000 1001"],
    ["agent:extra", "1000 1001 1001"],
    ["agent:77", "1000 77 77"],
    ["agent:", "1000 1000 1000 1001"],
    [":extra", "0 1001 1001"],
    ["77", "77 0 0"],
    ["77:bare", "77 1002 1002"],
    ["short", "7 8 8"],
    ["2147483647:2147483647", "2147483647 2147483647 2147483647"],
  ];
  for (const [user, ids] of users) {
    test(`user ${JSON.stringify(user)} is ${ids}`, async () => {
      const out = await bench.probe(`sb-${images}`, "exec 2> /dev/null; echo $(id -u) $(id -g) $(id -G)", {
        image: await make({ User: user }),
      });
      expect(out).toBe(`${ids}\n`);
    });
  }

  const nobodies: [string, string][] = [
    ["4294967295", "user '4294967295' is no number from 0 to 2147483647"],
    ["4294967296", "no number from 0 to"],
    ["99999999999999", "no number from 0 to"],
    ["9".repeat(400), "no number from 0 to"],
    ["agent:4294967295", "group '4294967295' is no number from 0 to"],
    ["-1", "has no user '-1'"],
    ["²", "is no number from 0 to"],
    ["nobody-here", "has no user 'nobody-here'"],
    ["agent:none", "has no group 'none'"],
    ["agent:many", "in the image's /etc/group 'many'"],
    ["high", "'4294967290' is no number from 0 to"],
    ["odd", "of user 'odd' in the image's /etc/passwd the id 'many' is no number"],
    ["oddgroup", "of user 'oddgroup' in the image's /etc/passwd the group 'many' is no number"],
  ];
  for (const [user, words] of nobodies) {
    test(`user ${JSON.stringify(user.slice(0, 20))} is refused, and nobody else runs`, async () => {
      expect(await refusal(await make({ User: user }))).toContain(words);
    });
  }

  test("a passwd that is no plain file names nobody, and nobody waits for it", async () => {
    const links: Entry[] = [
      { name: "etc/passwd", type: "symlink", linkname: "/dev/zero" },
      { name: "etc/group", type: "symlink", linkname: "/etc" },
    ];
    expect(await refusal(await make({ User: "agent" }, links))).toContain("has no user 'agent'");
    const probe = { image: await make({ User: "5:6" }, links) };
    expect(await bench.probe("sb-zero", "grep ^[UG]id: /proc/self/status", probe)).toMatch(
      /^Uid:\t5\t.*\nGid:\t6\t/,
    );
  });

  test("environment: what is no assignment is left out, of two the last counts, the rest is as it is", async () => {
    const Env = ["NONE", "=x", "A=1", "A=2", "B=", "C=a=b ü"];
    const out = await bench.probe("sb-env", "tr '\\0' '\\n' < /proc/1/environ | grep BOOT", {
      image: await make({ Env }),
    });
    const { env } = JSON.parse(out.match(/SANDMESH_BOOTSTRAP=(.*)/)?.[1] ?? "{}") as { env: object };
    expect(env).toMatchObject({ A: "2", B: "", C: "a=b ü" });
    expect(Object.keys(env).sort()).toEqual(["A", "B", "C", "HOME", "PATH"]);
  });

  test("a working folder that is not there is made, a relative one in the root", async () => {
    for (const [WorkingDir, cwd] of [
      ["/deep/new", "/deep/new"],
      ["rel/x", "/rel/x"],
      ["", "/"],
    ]) {
      const out = await bench.probe(
        `sb-cwd-${images}`,
        `tr '\\0' '\\n' < /proc/1/environ | grep BOOT; stat -c '%F %U' ${cwd}`,
        {
          image: await make({ WorkingDir }),
        },
      );
      expect(JSON.parse(out.match(/SANDMESH_BOOTSTRAP=(.*)/)?.[1] ?? "{}")).toMatchObject({ cwd });
      expect(out).toContain("directory root");
    }
    expect(await refusal(await make({ WorkingDir: "/bin/busybox/x" }))).toContain(
      "working folder /bin/busybox/x",
    );
  });

  test("what is no configuration is refused by the field that is wrong", async () => {
    const wrong: [object, string][] = [
      [{ Env: "A=1" }, "Env"],
      [{ Env: ["A=\0"] }, "Env"],
      [{ User: 5 }, "User"],
      [{ User: "a\0b" }, "User"],
      [{ WorkingDir: "/a\0b" }, "WorkingDir"],
      [{ WorkingDir: "/\ud800" }, "WorkingDir"],
      [{ Entrypoint: "/bin/sh" }, "Entrypoint"],
      [{ Cmd: ["/bin/sh\0"] }, "Cmd"],
    ];
    for (const [config, field] of wrong) {
      const said = await refusal(await make(config));
      expect(said).toContain("its configuration is malformed: ");
      expect(said).toContain(field);
    }
  });

  test("null stands for none, and an image without an entrypoint says so where one is asked for", async () => {
    const none = { Env: null, User: null, WorkingDir: null, Entrypoint: null, Cmd: null };
    const image = await make(none);
    expect(await bench.probe("sb-null", "id -u", { image })).toBe("0\n");
    const refused = bench.create("sb-no-entry", { image, entrypoint: true });
    await expect(refused).rejects.toMatchObject({ code: "unsupported", field: "spec.entrypoint" });
  });
});
