// A mesh whose server's certificate is signed by a CA of its own: both SDKs trust it where they are told to, and nobody
// else then.
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { formatCreds } from "../../broker/credentials/index.ts";
import { type TestServer, testServer } from "../../broker/server/testing.ts";
import { makeServerCertificate } from "../../deploy/kubernetes/certificates.ts";
import { ConnectionError, connect, InvalidRequestError } from "../../sdk/typescript/mod.ts";

setDefaultTimeout(60_000);
const ROOT = join(import.meta.dir, "..", "..");

let folder: string;
let server: TestServer;
let ca: string;
let credentials: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "sandmesh-ca-"));
  const made = makeServerCertificate(folder, ["127.0.0.1"]);
  const [certFile, keyFile] = [join(folder, "tls.crt"), join(folder, "tls.key")];
  await Promise.all([writeFile(certFile, made.certificate), writeFile(keyFile, made.key)]);
  server = await testServer({ tls: { certFile, keyFile } });
  ca = join(folder, "ca.crt");
  credentials = formatCreds(server.keys.mintUser({ tenant: "acme", user: "ann" }));
});
afterAll(async () => {
  await server.close();
  await rm(folder, { recursive: true });
});

describe("TypeScript", () => {
  const who = async (options: { ca?: string }): Promise<string> => {
    await using mesh = await connect({ url: server.url, credentials, handleSignals: false, ...options });
    return mesh.user;
  };

  test("by path, by text and by the environment; without it the server is not trusted", async () => {
    expect(await who({ ca })).toBe("ann");
    expect(await who({ ca: await Bun.file(ca).text() })).toBe("ann");
    await expect(who({})).rejects.toBeInstanceOf(ConnectionError);
    process.env.SANDMESH_CA = ca;
    try {
      expect(await who({})).toBe("ann");
    } finally {
      delete process.env.SANDMESH_CA;
    }
  });

  test("what is no certificate is refused by name, before anything is dialled", async () => {
    for (const wrong of [join(folder, "none"), join(folder, "tls.key"), credentials]) {
      const failed = who({ ca: wrong });
      await expect(failed).rejects.toBeInstanceOf(InvalidRequestError);
      await expect(failed).rejects.toMatchObject({ field: "ca" });
    }
  });
});

const PROGRAM = `
import asyncio, sys
import sandmesh

async def who(ca):
    async with sandmesh.connect(sys.argv[1], sys.argv[2], ca=ca) as mesh:
        return mesh.user

async def main():
    for ca in sys.argv[3:]:
        try:
            print(await who(None if ca == "-" else ca))
        except sandmesh.SandmeshError as error:
            print(type(error).__name__, getattr(error, "field", None) or str(error).rpartition(": ")[2])

asyncio.run(main())
`;

async function python(
  cas: string[],
  env: Record<string, string> = {},
  url: string = server.url,
): Promise<string[]> {
  const file = join(folder, "user.creds");
  await writeFile(file, credentials, { mode: 0o600 });
  const argv = ["bash", join(ROOT, "sdk/python/run"), "-c", PROGRAM, url, file, ...cas];
  const child = Bun.spawn(argv, { env: { ...process.env, ...env }, stdout: "pipe", stderr: "inherit" });
  const said = await new Response(child.stdout).text();
  expect(await child.exited).toBe(0);
  return said.trimEnd().split("\n");
}

test("Python: the same", async () => {
  const text = await Bun.file(ca).text();
  const empty = join(folder, "empty");
  await writeFile(empty, "");
  const wrong = ["", empty, join(folder, "none"), join(folder, "tls.key")];
  expect(await python([ca, text, "-", ...wrong])).toEqual([
    "ann",
    "ann",
    expect.stringMatching(/^ConnectionError /),
    ...wrong.map(() => "InvalidRequestError ca"),
  ]);
  expect(await python(["-"], { SANDMESH_CA: ca })).toEqual(["ann"]);
});

test("a server that speaks no TLS is told nothing where TLS was asked for, by its address or by a CA", async () => {
  await using plain = await testServer();
  const port = new URL(plain.url).port;
  const refused = "speaks no TLS";
  for (const url of [`tls://127.0.0.1:${port}`, `nats://127.0.0.1:${port}`]) {
    const failed = connect({ url, credentials, ca, handleSignals: false });
    await expect(failed).rejects.toThrow(refused);
    expect(await python([ca], {}, url)).toEqual([`ConnectionError the server ${refused}`]);
  }
  expect(await python(["-"], {}, `tls://127.0.0.1:${port}`)).toEqual([
    `ConnectionError the server ${refused}`,
  ]);
});
