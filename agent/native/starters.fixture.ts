// Runs commands together, and says how many threads there are then to start such.
import { readdirSync, readFileSync } from "node:fs";
import { run, testCommands } from "../exec/testing.ts";

const commands = await testCommands();
const ends = await Promise.all(Array.from({ length: 16 }, () => run(commands, { argv: ["echo", "hi"] })));
if (ends.some(({ text }) => text !== "hi\n")) throw new Error("a command was not run");
const names = readdirSync("/proc/self/task").map((id) => readFileSync(`/proc/self/task/${id}/comm`, "utf8"));
process.stdout.write(`${names.filter((name) => name === "sandmesh-start\n").length}`);
process.exit(0);
