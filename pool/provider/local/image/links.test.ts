// Links of an image's at what is mounted on: they lead neither to another's mounts nor out of the sandbox.
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdir, rm, symlink } from "node:fs/promises";
import { join } from "node:path";
import { makeBusyboxRoot } from "../../../../test/images/images.ts";
import { Bench } from "../testing.ts";

setDefaultTimeout(60_000);

describe.if(process.getuid?.() === 0)("links of an image's", () => {
  let bench: Bench;
  let count = 0;
  const refusal = (wish: object): Promise<unknown> =>
    bench.create(`sb-l${count++}`, wish).then(
      () => "none",
      (error: unknown) => error,
    );
  /** A root in which `name` is a link. */
  const linked = async (name: string, target: string): Promise<string> => {
    const image = await makeBusyboxRoot(join(bench.folder, `root-${count++}`));
    await rm(join(image, name), { recursive: true, force: true });
    await symlink(target, join(image, name));
    return image;
  };
  /** Where the machine's root is for as long as the sandbox is made. */
  const outside = (name: string) => `/.sandmesh/old${bench.folder}/${name}`;

  beforeAll(async () => {
    bench = await Bench.make();
  });
  afterAll(async () => {
    await bench[Symbol.asyncDispose]();
  });

  test.each([
    ["proc", "/dev"],
    ["proc", "/.sandmesh"],
    ["sys", "/dev"],
    ["sys", "/.sandmesh/daemon"],
    ["dev", "/"],
    ["dev", "/.sandmesh"],
    ["dev", "/bin"],
  ])("/%s to %s is the image's fault, and not the machine's", async (name, target) => {
    const refused = await refusal({ image: await linked(name, target) });
    expect(refused).toMatchObject({ code: "image_error", retryable: false, field: "spec.image" });
    expect(String(refused)).toContain(`its /${name} is not a folder, but a link`);
  });

  test("make no folder on the machine", async () => {
    const volume = (mount_path: string) => ({ volumes: [{ name: "v", source: "/usr/share", mount_path }] });
    for (const name of ["proc", "sys", "dev"])
      await refusal({ image: await linked(name, outside(`made-${name}`)) });
    await refusal({ image: await linked("v", outside("made-v")), ...volume("/v") });
    await mkdir(join(bench.folder, "there"));
    await refusal({ image: await linked("v", outside("there")), ...volume("/v/made-w") });
    expect(await Bun.$`find ${bench.folder} -name ${"made-*"}`.text()).toBe("");
  });

  test.each(["/.sandmesh", "/proc/self", "/sys/fs", "/dev/shm", "/"])(
    "lead no volume to %s, the sandbox's own",
    async (target) => {
      const volumes = [{ name: "v", source: "/usr/share", mount_path: "/v" }];
      const refused = await refusal({ image: await linked("v", target), volumes });
      expect(refused).toMatchObject({ code: "invalid_request", field: "spec.volumes.0.mount_path" });
      expect(String(refused)).toContain("the sandbox's own");
    },
  );

  test("at /tmp, /run and a volume's place lead into the sandbox, as any other", async () => {
    const image = await linked("v", "/root/there");
    for (const place of ["root/there", "var/tmp"]) await mkdir(join(image, place), { recursive: true });
    await rm(join(image, "tmp"), { recursive: true, force: true });
    await symlink("var/tmp", join(image, "tmp"));
    const volumes = [{ name: "v", source: "/usr/share", mount_path: "/v" }];
    const out = await bench.probe("sb-works", "ls -d /root/there/doc; touch /var/tmp/x; ls /tmp", {
      image,
      volumes,
    });
    expect(out).toBe("/root/there/doc\nx\n");
  });
});
