// `bun run check:rooms`: imports run one way between the rooms (ARCHITECTURE.md, "The rooms"), and each room's tests are run.

import { dirname, join, normalize, relative } from "node:path";
import { Glob } from "bun";

const ROOT = normalize(join(import.meta.dir, ".."));
const BROKER = [
  "broker/contract",
  "broker/credentials",
  "broker/link",
  "broker/endpoint",
  "broker/server",
] as const;
const ROOMS = [...BROKER, "agent", "pool", "sdk", "deploy", "test"] as const;
type Room = (typeof ROOMS)[number];
/** Which other rooms a file of a room may import: the table of ARCHITECTURE.md. */
const MAY_IMPORT: Record<Room, readonly Room[]> = {
  "broker/contract": [],
  "broker/credentials": ["broker/contract"],
  "broker/link": ["broker/contract", "broker/credentials"],
  "broker/endpoint": ["broker/contract", "broker/credentials", "broker/link"],
  "broker/server": ["broker/contract", "broker/credentials"],
  agent: ["broker/contract", "broker/credentials", "broker/link", "broker/endpoint"],
  pool: BROKER,
  sdk: ["broker/contract", "broker/credentials", "broker/link"],
  deploy: [...BROKER, "pool", "sdk"],
  test: ROOMS,
};
const roomOf = (path: string): Room | undefined => ROOMS.find((room) => path.startsWith(`${room}/`));
/** Tests and what only they import. */
const isTest = (path: string): boolean =>
  /\.(test|test-suite|fixture)\.ts$|(^|\/)testing((-[a-z]+)?\.ts$|\/)/.test(path);

function faultOf(file: string, target: string): string | undefined {
  const from = roomOf(file);
  const to = roomOf(target);
  if (from === undefined || to === undefined || from === to) return undefined;
  // Tests may start servers and helpers that the code beside them may not.
  if (isTest(file))
    return to === "deploy" && from !== "test" ? "a unit test must not import deploy/" : undefined;
  if (isTest(target) && from !== "test") return "only tests may import what is for tests";
  return MAY_IMPORT[from].includes(to) ? undefined : `${from}/ must not import ${to}/`;
}

const faults: string[] = [];
for await (const file of new Glob("{agent,broker,pool,sdk,deploy,test}/**/*.ts").scan({ cwd: ROOT })) {
  if (/(^|\/)(node_modules|dist)\//.test(file)) continue;
  const source = await Bun.file(join(ROOT, file)).text();
  for (const [, name] of source.matchAll(/(?:from|import|import\()\s*["']([^"']+)["']/g)) {
    if (name === undefined) continue;
    if (/^nats(\/|$)/.test(name) && !file.startsWith("broker/link/") && !isTest(file))
      faults.push(`${file}: only broker/link/ imports "nats"`);
    if (!name.startsWith(".")) continue;
    const fault = faultOf(file, relative(ROOT, join(ROOT, dirname(file), name)));
    if (fault !== undefined) faults.push(`${file}: ${fault} (${name})`);
  }
}
// A test that nothing runs is red for as long as nobody looks.
const all = await Bun.file(join(ROOT, "test", "all")).text();
for await (const file of new Glob("test/**/*.test.ts").scan({ cwd: ROOT })) {
  const [, folder = "", ...rest] = file.split("/");
  const ways =
    rest.length === 0 ? ["test/*.test.ts"] : ["/", "/test", "/run"].map((end) => `test/${folder}${end}`);
  if (!ways.some((way) => all.includes(way))) faults.push(`${file}: test/all does not run it`);
}
for (const fault of faults) console.error(fault);
if (faults.length > 0) process.exit(1);
console.error("rooms: imports run one way");
