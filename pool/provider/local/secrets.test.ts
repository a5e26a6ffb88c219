// No way leads a sandbox to the mesh's own folders: neither as volume nor as image, by whatever path, nor in image host.
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { mkdir, mkdtemp, readdir, realpath, rename, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { makeBusyboxRoot } from "../../../test/images/images.ts";
import { Bench, requestFor, unmountBelow, volume } from "./testing.ts";

const isRoot = process.getuid?.() === 0;
const bind = async (source: string, target: string): Promise<void> => {
  await mkdir(target, { recursive: true });
  await Bun.$`mount --bind ${source} ${target}`.quiet();
};

let folder: string;
/** What was mounted there goes with it. */
beforeEach(async () => {
  folder = await realpath(await mkdtemp("/var/tmp/sandmesh-secrets-"));
});
afterEach(async () => {
  await unmountBelow(folder);
  await rm(folder, { recursive: true, force: true });
});

/** A mesh's home by a link, whose real folder is `real/home`: what of it is kept from sandboxes is told by the link. */
async function linkedHome(): Promise<{ bench: Bench; home: string }> {
  const home = join(folder, "real", "home");
  for (const part of ["local", "nats"]) await mkdir(join(home, part), { recursive: true });
  await writeFile(join(home, "nats", "keys.json"), "SECRET-KEYS");
  await symlink(join(folder, "real"), join(folder, "link"));
  const named = join(folder, "link", "home");
  return { bench: new Bench(folder, { stateDir: join(named, "local"), hide: [named] }), home };
}

const end = async (bench: Bench): Promise<void> => {
  await bench.provider.end(AbortSignal.timeout(60_000));
  await bench.provider.close();
};

test("neither a volume nor an image is the mesh's home, a part of it, or what holds it, by whatever path", async () => {
  const { bench, home } = await linkedHome();
  await symlink(home, join(folder, "another"));
  const paths = [home, join(home, "local"), join(home, "nats"), join(folder, "real"), folder, "/"];
  const ways = [...paths, join(folder, "link"), join(folder, "another", "nats"), `/proc/self/root${home}`];
  try {
    for (const path of ways) {
      const asVolume = bench.provider.validate(requestFor("sb-v", volume(path)).spec);
      await expect(asVolume).rejects.toMatchObject({
        code: "invalid_request",
        field: "spec.volumes.0.source",
      });
      const asImage = bench.provider.validate(requestFor("sb-i", { image: path }).spec);
      await expect(asImage).rejects.toMatchObject({ code: "image_error" });
      await expect(asImage).rejects.toThrow("the mesh's own state folder");
    }
  } finally {
    await end(bench);
  }
});

describe.if(isRoot)("where folders are mounted elsewhere, too", () => {
  test("what is the home's by a bind mount, or holds one of it, is refused; its neighbours are not", async () => {
    const { bench, home } = await linkedHome();
    await bind(join(home, "nats"), join(folder, "elsewhere", "keys"));
    await bind(join(folder, "real"), join(folder, "parent"));
    await mkdir(join(folder, "plain"));
    await bind(join(folder, "plain"), join(folder, "bound"));
    const wish = (path: string) => bench.provider.validate(requestFor("sb-v", volume(path)).spec);
    try {
      for (const way of ["elsewhere/keys", "elsewhere", "parent", "parent/home/nats"]) {
        const refused = await wish(join(folder, way)).catch((error: unknown) => error);
        expect([way, refused]).toEqual([way, expect.objectContaining({ code: "invalid_request" })]);
      }
      await wish(join(folder, "plain"));
      await wish(join(folder, "bound"));
    } finally {
      await end(bench);
    }
  });

  test("a home that lies below a bind mount is hidden in image host by its other path, too", async () => {
    const { bench, home } = await linkedHome();
    await end(bench);
    await bind(join(folder, "real"), join(folder, "mounted"));
    await mkdir(join(folder, "probes"));
    const named = join(folder, "mounted", "home");
    const other = new Bench(join(folder, "probes"), { stateDir: join(named, "local"), hide: [named] });
    try {
      const out = await other.probe("sb-p", `ls -A ${home}; cat ${home}/nats/keys.json; ls -A ${named}`);
      expect(out).not.toContain("SECRET-KEYS");
      expect(out).not.toContain("nats\n");
    } finally {
      await end(other);
    }
  });
});

describe.if(isRoot)("what is named by links", () => {
  let bench: Bench;
  beforeAll(async () => {
    bench = await Bench.make();
  });
  afterAll(async () => {
    await bench[Symbol.asyncDispose]();
  });

  test("state folder, image and volume behind absolute links are what the links lead to", async () => {
    await mkdir(join(folder, "real", "data"), { recursive: true });
    await writeFile(join(folder, "real", "data", "f"), "of the volume");
    await makeBusyboxRoot(join(folder, "real", "root"));
    await symlink(join(folder, "real"), join(folder, "link"));
    const linked = new Bench(folder, { stateDir: join(folder, "link", "state") });
    const wish = { ...volume(join(folder, "link", "data")), image: join(folder, "link", "root") };
    try {
      expect(await linked.probe("sb-l", "ls /.sandmesh/relay; cat /v/f", wish)).toContain("of the volume");
    } finally {
      await end(linked);
    }
  });

  test("what is mounted below a volume's source is as read-only as the volume", async () => {
    await mkdir(join(folder, "disk"));
    await bind(join(folder, "disk"), join(folder, "data", "a", "inner"));
    const out = await bench.probe(
      "sb-ro",
      "touch /v/x /v/a/x /v/a/inner/x; ls /v",
      volume(join(folder, "data")),
    );
    expect(out.match(/Read-only file system/g)).toHaveLength(3);
    expect(await readdir(join(folder, "disk"))).toEqual([]);
  });

  test("a volume that is led to the mesh's folder after it was looked at is refused, or is what was looked at", async () => {
    await mkdir(join(folder, "data"));
    await symlink(join(folder, "data"), join(folder, "good"));
    await symlink(bench.stateDir, join(folder, "bad"));
    const path = join(folder, "volume");
    await symlink(join(folder, "data"), path);
    let swapping = true;
    const swap = async () => {
      while (swapping)
        for (const to of [bench.stateDir, join(folder, "data")]) {
          await symlink(to, join(folder, "fresh"));
          await rename(join(folder, "fresh"), path);
        }
    };
    const swapped = swap();
    const seen: string[] = [];
    try {
      for (let i = 0; i < 30; i++) {
        const said = await bench
          .probe(`sb-swap${i}`, "ls -A /v", volume(path))
          .catch((error: { code: string }) => error.code);
        seen.push(said);
        await bench.remove(`sb-swap${i}`);
      }
    } finally {
      swapping = false;
      await swapped;
    }
    expect(seen.filter((said) => said !== "invalid_request" && said !== "")).toEqual([]);
  });
});
