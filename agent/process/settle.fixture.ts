// For settle.test.ts: a process that settles as the daemon does, and says what became of it as JSON.
import { dlopen, FFIType } from "bun:ffi";
import { readdirSync, readFileSync } from "node:fs";
import { SandmeshError } from "../../broker/contract/index.ts";
import { Commands } from "../exec/exec.ts";
import { begin, run, testEngine, until } from "../exec/testing.ts";
import { commandEnvironment } from "./environment.ts";
import { settleProcess } from "./settle.ts";

const WNOHANG = 1;
const what = process.argv[2];
const engine = await testEngine();
const commands = new Commands({ engine, environment: commandEnvironment(settleProcess(engine)), cwd: "/" });

const zombies = (): number =>
  readdirSync("/proc").filter((pid) => {
    try {
      return (
        /^\d+$/.test(pid) &&
        new RegExp(`\\) Z ${process.pid} `).test(readFileSync(`/proc/${pid}/stat`, "latin1"))
      );
    } catch {
      return false;
    }
  }).length;

async function answer(): Promise<object> {
  switch (what) {
    case "orphans": {
      const codes = Array.from({ length: 200 }, (_, i) => i);
      // Each leaves an orphan with another session, and one in its own.
      const ends = await Promise.all(
        codes.map((code) =>
          run(commands, { shell: `(setsid true &); (sleep 0.1 >/dev/null 2>&1 &); exit ${code}` }),
        ),
      );
      const orphan = begin(commands, { shell: "(setsid sleep 0.3 >/dev/null 2>&1 & echo $!) | cat" });
      const pid = Number((await orphan.ended).text);
      const parent = readFileSync(`/proc/${pid}/stat`, "latin1").split(") ")[1]?.split(" ")[1];
      await until(
        "all orphans are gone",
        () => zombies() === 0 && !readdirSync("/proc").includes(String(pid)),
      );
      const told = ends.every(({ outcome }, code) => outcome.type === "exited" && outcome.code === code);
      return { codes: told, orphansSeen: Number(parent) === process.pid, zombies: zombies() };
    }
    case "many-orphans": {
      // As PID 1 gets them: children of processes that have ended, in sessions of their own, beside commands.
      const made = begin(commands, { argv: [process.argv[3] ?? ""], timeout_ms: 60_000 });
      const codes: unknown[] = [];
      let over = false;
      void made.ended.finally(() => {
        over = true;
      });
      while (!over) codes.push((await run(commands, { argv: ["sh", "-c", "exit 6"] })).outcome);
      const { outcome, text } = await made.ended;
      await until("all orphans are gone", () => zombies() === 0, 30_000);
      const right = codes.every((end) => JSON.stringify(end) === '{"type":"exited","code":6}');
      return { outcome, made: Number(text), beside: codes.length > 10 && right, zombies: zombies() };
    }
    case "bun-spawn": {
      const codes = await Promise.all(
        Array.from({ length: 20 }, () => Bun.spawn(["sh", "-c", "exit 7"]).exited),
      );
      await until("no zombie is left", () => zombies() === 0);
      return { codes, zombies: zombies() };
    }
    case "taken": {
      // Another part of the process waits for the very child; who is first is chance, so until each has been it once.
      const { waitpid } = dlopen("libc.so.6", {
        waitpid: { args: [FFIType.i32, FFIType.ptr, FFIType.i32], returns: FFIType.i32 },
      }).symbols;
      const seen = new Set<string>();
      for (let i = 0; i < 10_000 && !seen.has("internal yes"); i++) {
        const running = begin(commands, { argv: ["sh", "-c", "exit 9"] });
        const pid = await running.started;
        while (waitpid(pid, null, WNOHANG) === 0);
        seen.add(
          await running.ended.then(
            ({ outcome }) => JSON.stringify(outcome),
            (error) => (error instanceof SandmeshError ? `${error.code} ${error.started}` : String(error)),
          ),
        );
      }
      const after = await run(commands, { shell: "exit 4" });
      return { taken: seen.delete("internal yes"), others: [...seen], after: after.outcome };
    }
    case "hidden": {
      const read = (file: string): Promise<string> =>
        run(commands, { shell: `cat /proc/${process.pid}/${file} 2>/dev/null` }).then((end) => end.text);
      const fds = await run(commands, { shell: `ls /proc/${process.pid}/fd 2>/dev/null` });
      return {
        environ: await read("environ"),
        maps: await read("maps"),
        fds: fds.text,
        name: (await read("comm")).trim(),
      };
    }
    default:
      return { soft: (await run(commands, { shell: "ulimit -Sn" })).text.trim() };
  }
}
console.log(JSON.stringify(await answer()));
process.exit(0);
