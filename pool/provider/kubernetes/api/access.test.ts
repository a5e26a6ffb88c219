import { afterEach, expect, test } from "bun:test";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openAccess } from "./access.ts";

const folders: string[] = [];
afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
});

function kubeconfig(user: object, cluster: object = {}) {
  const folder = mkdtempSync(join(tmpdir(), "sandmesh-access-"));
  folders.push(folder);
  const write = (who: object) =>
    writeFileSync(
      join(folder, "config"),
      JSON.stringify({
        apiVersion: "v1",
        kind: "Config",
        clusters: [{ name: "c", cluster: { server: "https://127.0.0.1:6443", ...cluster } }],
        contexts: [
          { name: "mine", context: { cluster: "c", user: "me" } },
          { name: "other", context: { cluster: "none", user: "me" } },
        ],
        users: [{ name: "me", user: who }],
        "current-context": "mine",
      }),
    );
  write(user);
  return { folder, file: join(folder, "config"), write };
}

const tokenOf = async (access: ReturnType<typeof openAccess>, anew = false) => {
  const headers = new Headers((await access.credentials(anew)).headers as Record<string, string>);
  return headers.get("authorization");
};

function withKubeconfig<T>(files: string, use: () => T): T {
  const before = process.env.KUBECONFIG;
  process.env.KUBECONFIG = files;
  try {
    return use();
  } finally {
    if (before === undefined) delete process.env.KUBECONFIG;
    else process.env.KUBECONFIG = before;
  }
}

test("a kubeconfig or a token without end is refused by name, not read until memory is used up", async () => {
  expect(() => openAccess("/dev/zero", undefined)).toThrow("kubeconfig: /dev/zero is larger than");
  const { file } = kubeconfig({ tokenFile: "/dev/zero" });
  const access = openAccess(file, undefined);
  await expect(access.credentials()).rejects.toThrow("tokenFile: /dev/zero is larger than");
  access.close();
  withKubeconfig("/dev/zero", () => {
    expect(() => openAccess(undefined, undefined)).toThrow("kubeconfig: /dev/zero is larger than");
  });
});

test("a kubeconfig that is none is told in one short line, without what is in it", () => {
  const { folder } = kubeconfig({});
  const file = join(folder, "none");
  const cases: [content: string | Buffer, why: string][] = [
    ["", "is empty"],
    ["\n \n", "is empty"],
    [Buffer.from([0x7f, 0x45, 0x4c, 0x46, 2, 1, 0, 0xff, 0x0a, 0, 3]), "is not YAML"],
    ["users: [secret", "is not YAML"],
    ["# nothing", "is YAML, but no kubeconfig"],
    ["secret", "is YAML, but no kubeconfig"],
    ["- secret", "is YAML, but no kubeconfig"],
    ["clusters: secret", "is YAML, but no kubeconfig"],
  ];
  for (const [content, why] of cases) {
    writeFileSync(file, content);
    const message = `the kubeconfig ${file} ${why}`;
    expect(() => openAccess(file, undefined)).toThrow(
      expect.objectContaining({ field: "kubeconfig", message }),
    );
  }
});

test("of several files each is read once, also what comes by a pipe, and its token is named from its own folder", async () => {
  const { folder, file } = kubeconfig({ tokenFile: "token" });
  writeFileSync(join(folder, "token"), "piped\n");
  const pipe = join(folder, "pipe");
  Bun.spawnSync(["mkfifo", pipe]);
  const later = join(folder, "later");
  writeFileSync(later, JSON.stringify({ clusters: [], contexts: [], users: [{ name: "you", user: {} }] }));
  const writer = Bun.spawn(["sh", "-c", `cat ${file} > ${pipe}`]);
  const access = withKubeconfig(`${pipe}:${later}`, () => openAccess(undefined, undefined));
  expect([access.server.port, await tokenOf(access)]).toEqual(["6443", "Bearer piped"]);
  access.close();
  expect(await writer.exited).toBe(0);
});

test("a token in a file, named from the kubeconfig's folder: kept while it is good, read anew when it is refused", async () => {
  const { folder, file } = kubeconfig({ tokenFile: "token" });
  writeFileSync(join(folder, "token"), "first\n");
  const access = openAccess(file, undefined);
  expect(await tokenOf(access)).toBe("Bearer first");
  writeFileSync(join(folder, "token"), "second\n");
  expect(await tokenOf(access)).toBe("Bearer first");
  expect(await tokenOf(access, true)).toBe("Bearer second");
});

test("a kubeconfig that was written anew is read anew when its credentials are refused, and half of one is not believed", async () => {
  const { file, write } = kubeconfig({ token: "old" });
  const access = openAccess(file, undefined);
  expect(await tokenOf(access)).toBe("Bearer old");
  write({ token: "new" });
  expect(await tokenOf(access, true)).toBe("Bearer new");
  writeFileSync(file, '{"users": [');
  expect(await tokenOf(access, true)).toBe("Bearer new");
});

test("an exec plugin's token is used, and asked for again when it is refused", async () => {
  const { folder, file, write } = kubeconfig({});
  const [plugin, count] = [join(folder, "plugin"), join(folder, "count")];
  const apiVersion = "client.authentication.k8s.io/v1";
  const answer = `{"apiVersion":"${apiVersion}","kind":"ExecCredential","status":{"token":"t%s"}}`;
  writeFileSync(plugin, `#!/bin/sh\necho x >> ${count}\nprintf '${answer}' "$(wc -l < ${count})"\n`);
  chmodSync(plugin, 0o755);
  write({ exec: { apiVersion, command: plugin, interactiveMode: "Never" } });
  const access = openAccess(file, undefined);
  expect(await tokenOf(access)).toBe("Bearer t1");
  expect(await tokenOf(access, true)).toBe("Bearer t2");
});

test("what cannot be used is refused before anything is asked: no file, no cluster, no such context", () => {
  const { file } = kubeconfig({});
  expect(() => openAccess("/does/not/exist", undefined)).toThrow(
    /^the kubeconfig cannot be read: ENOENT: no such file[^:]*$/,
  );
  expect(() => openAccess(file, "other")).toThrow("names no cluster");
  const nowhere = kubeconfig({}, { server: "no where" });
  expect(() => openAccess(nowhere.file, undefined)).toThrow(
    "the server of the kubeconfig's cluster c is no address",
  );
});

test("a token file that is not there is a missing credential, and is looked for again", async () => {
  const { folder, file } = kubeconfig({ tokenFile: "token" });
  const access = openAccess(file, undefined);
  await expect(access.credentials()).rejects.toMatchObject({ reason: "unauthorized" });
  writeFileSync(join(folder, "token"), "there");
  expect(await tokenOf(access)).toBe("Bearer there");
});
