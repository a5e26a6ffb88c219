// A terminal whose reader is lost: the screen's bytes from where that reader was, and the terminal obeys the next one.
import { expect, test } from "bun:test";
import { liveMesh } from "./mesh.ts";

const PROGRAM = `trap 'stty size' WINCH; trap 'echo interrupted; exit 3' INT; stty -echo
printf '\\033[2J\\033[1;31mone\\033[0m\\n'
while read line; do printf '\\033[32m%s\\033[0m\\n' "$line"; done`;

test("a terminal goes on without the client that opened it; the next one reads on from its offset, resizes and interrupts", async () => {
  await using live = await liveMesh();
  const owner = await (await live.connect()).acquire({ image: "host" });
  const bob = await live.connect({}, "bob");
  const first = await bob
    .sandbox(owner.id)
    .terminal({ rows: 24, cols: 80, command: ["bash", "-c", PROGRAM] });
  const { id } = first.command;
  let seen = "";
  for await (const chunk of first.output) {
    seen += chunk.text;
    if (seen.includes("one\x1b[0m\r\n")) break;
  }
  await bob.close();
  const from = Buffer.byteLength(seen);

  // While nobody reads.
  await owner.command(id).stdin.write("meanwhile\n");
  const carol = await live.connect({}, "carol");
  const command = carol.sandbox(owner.id).command(id);
  let rest = "";
  let resized = false;
  let interrupted = false;
  for await (const chunk of command.attach({ from: { stdout: from } })) {
    rest += chunk.text;
    if (!resized && rest.includes("meanwhile")) {
      resized = true;
      await command.resize(20, 50);
      await command.stdin.write("next\n"); // bash runs a trap when its read comes back
    }
    if (!interrupted && rest.includes("20 50\r\n") && rest.includes("next")) {
      interrupted = true;
      await command.stdin.write("\x03");
    }
  }
  expect(seen).toBe("\x1b[2J\x1b[1;31mone\x1b[0m\r\n");
  expect(rest).toStartWith("\x1b[32mmeanwhile\x1b[0m\r\n");
  const result = await command.wait();
  expect(result.outcome).toEqual({ type: "exited", code: 3 });
  expect(rest).toContain("interrupted\r\n");
  // A third reads the same screen from its beginning.
  expect(result.stdout.text).toBe(seen + rest);
}, 30_000);

test("a terminal that is to be hung up ends with the client that opened it, and lives on under one that is quiet and there", async () => {
  await using live = await liveMesh();
  const owner = await (await live.connect()).acquire({ image: "host" });
  const open = async (user: string) => {
    const client = await live.connect({}, user);
    const terminal = await client
      .sandbox(owner.id)
      .terminal({ command: ["bash", "--norc"], hangUpAfter: "900ms" });
    return { client, terminal, id: terminal.command.id };
  };
  const quiet = await open("bob");
  const lost = await open("carol");
  await lost.client.close();
  // Of itself nothing ends there: the shell waits for a line.
  expect((await owner.command(lost.id).wait()).outcome).toMatchObject({ type: "signaled", signal: "SIGHUP" });
  const state = (await owner.commands()).find(({ id }) => id === quiet.id);
  expect(state).toMatchObject({ running: true });
  await quiet.terminal.close();
}, 30_000);
