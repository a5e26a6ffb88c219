// Persistent shells through the SDK, against real daemons.
import { expect, test } from "bun:test";
import { SessionClosedError } from "../../../sdk/typescript/mod.ts";
import { liveMesh } from "./mesh.ts";

const SPEC = { image: "host" } as const;
const LONG = 60_000;

test(
  "folder, variables and functions live on; outcomes, both streams and time limits are as elsewhere",
  async () => {
    await using live = await liveMesh();
    const mesh = await live.connect();
    const box = await mesh.acquire(SPEC);
    await using shell = await box.shell({ shell: "bash", cwd: "/tmp", env: { A: "b" } });
    await shell.exec("cd /usr; X=1; f() { echo $X $A $PWD; }");
    const result = await shell.exec("f; echo oops >&2; (exit 5)");
    expect([result.stdout.text, result.stderr.text, result.exitCode]).toEqual(["1 b /usr\n", "oops\n", 5]);
    const late = await shell.exec("echo so far; sleep 600", { timeout: 300 });
    expect([late.outcome.type, late.stdout.text]).toEqual(["timed_out", "so far\n"]);
    let streamed = "";
    for await (const chunk of shell.stream("f")) streamed += chunk.text;
    expect(streamed).toBe("1 b /usr\n");
  },
  LONG,
);

test(
  "a session lives on after an open quote; an exit is told, and so is a closed session",
  async () => {
    await using live = await liveMesh();
    const mesh = await live.connect();
    const box = await mesh.acquire(SPEC);
    const shell = await box.shell({ name: "one" });
    // An outcome or an error, as the daemon can tell; either way the session is there for the next line.
    await shell.exec("echo 'open").catch(() => undefined);
    expect((await shell.exec("echo alive")).stdout.text).toBe("alive\n");
    await shell.close();
    await shell.close();
    expect(await shell.exec("true").catch((error: unknown) => error)).toBeInstanceOf(SessionClosedError);
    const again = await box.shell({ name: "one" });
    expect((await again.exec("exit 3")).outcome).toEqual({ type: "exited", code: 3 });
    expect(await again.exec("true").catch((error: unknown) => error)).toBeInstanceOf(SessionClosedError);
  },
  LONG,
);
