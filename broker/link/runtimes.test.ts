// The link outside of Bun's own interpreter: in Node, and in a compiled program over a relay and over TLS.
import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer, connect as dial } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ConnectionError } from "../contract/index.ts";
import { testServer } from "../server/testing.ts";

const folder = mkdtempSync(join(tmpdir(), "sandmesh-runtimes-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** A program that connects as its environment says, asks itself, and prints the answer. */
const program = `
  import { connect } from ${JSON.stringify(join(import.meta.dir, "connect.ts"))};
  const { urls, user, box, relay } = JSON.parse(process.env.LINK_TEST);
  const more = relay === undefined ? {} : { relay };
  const sandbox = await connect({ urls, credentials: box, ...more });
  sandbox.subscribe("sbx.v1.acme.sb-1.*", (message) => message.respond(message.data, { Runtime: "yes" }));
  await sandbox.flush();
  const link = await connect({ urls, credentials: user, ...more });
  const answer = await link.request("sb-1", "sbx.v1.acme.sb-1.x", Buffer.from("hello"), { timeoutMs: 10000 });
  console.log(Buffer.from(answer.data).toString(), answer.header("runtime"));
  const failed = await link.request("sb-2", "sbx.v1.acme.sb-2.x", Buffer.from(""), { timeoutMs: 10000 }).catch((e) => e.code);
  console.log(failed);
  await link.close();
  await sandbox.close();
`;

async function run(command: string[], env: object): Promise<string> {
  const child = Bun.spawn(command, {
    env: { ...process.env, LINK_TEST: JSON.stringify(env) },
    stdout: "pipe",
    stderr: "pipe",
  });
  const [out, err] = [await new Response(child.stdout).text(), await new Response(child.stderr).text()];
  return (await child.exited) === 0 ? out : err;
}

async function must(command: string[]): Promise<void> {
  const child = Bun.spawn(command, { stdout: "ignore", stderr: "pipe" });
  const err = await new Response(child.stderr).text();
  if ((await child.exited) !== 0) throw new Error(`${command.join(" ")}: ${err}`);
}

test("works in Node", async () => {
  await using server = await testServer();
  await Bun.write(join(folder, "program.ts"), program);
  const bundle = join(folder, "program.mjs");
  await must([process.execPath, "build", "--target=node", `--outfile=${bundle}`, join(folder, "program.ts")]);
  const user = server.keys.mintUser({ tenant: "acme", user: "ann" });
  const box = server.sandboxCredentials("acme", "sb-1");
  expect(await run(["node", bundle], { urls: [server.url], user, box })).toBe("hello yes\nunreachable\n");
}, 60_000);

test("works in a compiled program over a relay", async () => {
  await using server = await testServer();
  await Bun.write(join(folder, "program.ts"), program);
  const compiled = join(folder, "program");
  await must([process.execPath, "build", "--compile", `--outfile=${compiled}`, join(folder, "program.ts")]);
  const path = join(folder, "nats.sock");
  const relay = createServer((down) => {
    const up = dial({ host: "127.0.0.1", port: server.port });
    for (const socket of [down, up]) socket.on("error", () => {});
    down.pipe(up).pipe(down);
  });
  await new Promise<void>((ready) => relay.listen(path, ready));
  try {
    const user = server.keys.mintUser({ tenant: "acme", user: "ann" });
    const box = server.sandboxCredentials("acme", "sb-1");
    const env = { urls: ["nats://nowhere.invalid:4222"], relay: path, user, box };
    expect(await run([compiled], env)).toBe("hello yes\nunreachable\n");
  } finally {
    relay.close();
  }
}, 60_000);

test("over TLS it trusts the CA that it was given, and nobody else", async () => {
  const [keyFile, certFile] = [join(folder, "key.pem"), join(folder, "cert.pem")];
  await must([
    ...["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"],
    ...["-days", "2", "-subj", "/CN=sandmesh", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"],
    ...["-keyout", keyFile, "-out", certFile],
  ]);
  await using server = await testServer({ tls: { certFile, keyFile } });
  expect(server.url).toStartWith("tls://");
  const ca = await Bun.file(certFile).text();
  for (const url of [server.url, server.url.replace("127.0.0.1", "localhost")]) {
    const link = await server.user("acme", "ann", { urls: [url], ca });
    const failed = await link
      .request("sb-1", "sbx.v1.acme.sb-1.x", Buffer.from(""), { timeoutMs: 10_000 })
      .catch((e) => e);
    expect(failed.code).toBe("unreachable");
  }
  await expect(server.user("acme", "ann")).rejects.toBeInstanceOf(ConnectionError);
}, 60_000);
