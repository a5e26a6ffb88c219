// `bun run check:rooms`: imports run one way between the top-level rooms (ARCHITECTURE.md, "The rooms").

import { dirname, join, normalize, relative } from "node:path";
import { Glob } from "bun";

const ROOT = normalize(join(import.meta.dir, ".."));
type Room = "agent" | "broker" | "pool" | "sdk" | "deploy" | "test";
/** Which other rooms a file of a room may import. */
const MAY_IMPORT: Record<Room, readonly Room[]> = {
  broker: [],
  agent: ["broker"],
  pool: ["broker"],
  sdk: ["broker"],
  deploy: ["broker", "pool", "sdk"],
  test: ["broker", "pool", "sdk", "agent", "deploy"],
};
const isRoom = (name: string | undefined): name is Room => name !== undefined && name in MAY_IMPORT;
const isTest = (path: string): boolean => path.endsWith(".test.ts");

/** Narrower rules within the rooms: the first path may import nothing of the second. */
const FORBIDDEN: readonly [from: string, target: string][] = [
  ["broker/contract/", "broker/link/"],
  ["broker/contract/", "broker/server/"],
  ["broker/contract/", "broker/endpoint/"],
  ["agent/", "broker/server/"],
  ["sdk/", "broker/server/"],
  ["sdk/", "broker/endpoint/"],
];

function faultOf(file: string, target: string): string | undefined {
  const from = file.split("/")[0];
  const to = target.split("/")[0];
  if (!isRoom(from) || !isRoom(to)) return undefined;
  // Test files may start servers and helpers that the code beside them may not.
  if (isTest(file))
    return to === "deploy" && from !== "deploy" && from !== "test"
      ? "a unit test must not import deploy/"
      : undefined;
  if (from !== to && !MAY_IMPORT[from].includes(to)) return `${from}/ must not import ${to}/`;
  const narrow = FORBIDDEN.find(([a, b]) => file.startsWith(a) && target.startsWith(b));
  return narrow ? `${narrow[0]} must not import ${narrow[1]}` : undefined;
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
for (const fault of faults) console.error(fault);
if (faults.length > 0) process.exit(1);
console.error("rooms: imports run one way");
