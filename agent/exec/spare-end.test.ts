// A spare shell in a daemon, which reaps orphans and is closed at its end.
import { expect, test } from "bun:test";
import { join } from "node:path";

/** What a program says that has an engine, and reaps orphans, as the daemon does. */
function daemonSays(body: string): string[] {
  const program = `
    const { testCommands, testEngine, run, until } = await import(${JSON.stringify(join(import.meta.dir, "testing.ts"))});
    const commands = await testCommands();
    const engine = await testEngine();
    engine.reapOrphans();
    const comms = async () => (await run(commands, { argv: ["ps", "-o", "comm=", "--ppid", String(process.pid)] })).text;
    const ready = () => until("a spare shell", () => engine.hasSpare() === true);
    ${body}
    process.exit(0);`;
  const ran = Bun.spawnSync([process.execPath, "-e", program]);
  return [ran.stdout.toString(), ran.stderr.toString()];
}

test("who reaps orphans does not take a stop of a spare shell on its way, which would wait for ever", () => {
  const body = `
    const orphan = { shell: "(sleep 0.002 &) ; (sleep 0.004 &) ; (sleep 0.006 &)" };
    for (let i = 0; i < 40; i++) {
      for (let k = 0; k < 2; k++) await run(commands, { ...orphan, cwd: i % 2 ? "/" : "/tmp" });
      await ready();
    }
    console.log("ready each time");`;
  expect(daemonSays(body)).toEqual(["ready each time\n", ""]);
}, 60_000);

test("when the daemon's commands are closed no spare shell is left, and none is made any more", () => {
  const body = `
    for (let i = 0; i < 2; i++) await run(commands, { shell: ":" });
    await ready();
    await commands.close(0);
    for (let i = 0; i < 3; i++) await run(commands, { shell: ":" });
    await until("it is gone", async () => !(await comms()).includes("spare"));
    console.log(engine.hasSpare());`;
  expect(daemonSays(body)).toEqual(["undefined\n", ""]);
}, 30_000);
