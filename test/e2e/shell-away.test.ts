// What is typed into `sandmesh shell` while its sandbox is cut off.
import { expect, test } from "bun:test";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { UnreachableError } from "../../sdk/typescript/mod.ts";
import { credentialsOf } from "../../sdk/typescript/testing/harness.ts";
import { liveMesh, scratch } from "../integration/sdk-typescript/mesh.ts";
import { eventually, PROGRAM } from "./program.ts";

test("what is typed while the sandbox is away, for longer than a call waits for it, reaches it in its order when it is back", async () => {
  await using live = await liveMesh({ cuttable: true, limits: { disconnectGraceMs: 120_000 } });
  const box = await (await live.connect()).acquire({ image: "host" });
  await using folder = await scratch();
  const creds = join(folder.path, "user.creds");
  await writeFile(creds, credentialsOf(live.server), { mode: 0o600 });
  const shell = Bun.spawn([...PROGRAM, "shell", box.id], {
    env: { ...process.env, SANDMESH_URL: live.server.url, SANDMESH_CREDS: creds },
    stdin: "pipe",
    stdout: "pipe",
    stderr: "pipe",
  });
  let seen = "";
  const reading = (async () => {
    for await (const part of shell.stdout) seen += Buffer.from(part).toString();
  })();
  const type = async (text: string) => {
    shell.stdin.write(text);
    await shell.stdin.flush();
  };
  // The words are split where they are typed, so that the terminal's echo is not taken for the answer.
  await type("echo rea''dy\n");
  await eventually("it runs", () => seen.includes("ready\r\n"));
  const blocked = live.daemonsWay?.block();
  await type("echo ke''pt\n");
  // Asked behind that, and given up no sooner.
  expect(await box.ping().catch((error: unknown) => error)).toBeInstanceOf(UnreachableError);
  await type("echo la''ter; exit 7\n");
  blocked?.open();
  expect([await shell.exited, await new Response(shell.stderr).text()]).toEqual([7, ""]);
  await reading;
  expect(seen).toMatch(/kept\r\n.*later\r\n/s);
}, 90_000);
