// A compiled program without the zeros that Bun fills its file with must still be the same program, and nothing else may
// be taken for one.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { withoutZeros } from "./without-zeros.ts";

let scratch: string;
let program: Buffer;
const file = (name: string): string => join(scratch, name);
const text = "läuft ".repeat(20_000);

beforeAll(() => {
  scratch = mkdtempSync(join(tmpdir(), "zeros-test-"));
  const source = `const text = ${JSON.stringify(text)};
    let sum = 0;
    for (const each of process.argv.slice(2)) sum += Number(each);
    process.stdout.write(JSON.stringify({ sum, text, free: new Array(1000).fill(0).length }));`;
  writeFileSync(file("source.ts"), source);
  const argv = [
    "build",
    "--compile",
    "--bytecode",
    "--format=esm",
    "--outfile",
    file("whole"),
    file("source.ts"),
  ];
  expect(Bun.spawnSync([process.execPath, ...argv]).exitCode).toBe(0);
  program = readFileSync(file("whole"));
}, 60_000);
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

const run = (name: string): unknown => JSON.parse(Bun.spawnSync([file(name), "20", "3"]).stdout.toString());

test("the program is the same, in a smaller file", () => {
  writeFileSync(file("small"), withoutZeros(program));
  chmodSync(file("small"), 0o755);
  expect(run("small")).toEqual(run("whole"));
  expect(run("small")).toEqual({ sum: 23, text, free: 1000 });
  // No runtime of these has less.
  expect(program.length - readFileSync(file("small")).length).toBeGreaterThan(1_000_000);
});

test("bytes that are no zeros are not thrown away", () => {
  const other = Buffer.from(program);
  const zeros = other.indexOf(Buffer.alloc(1_000_000));
  expect(zeros).toBeGreaterThan(0);
  other[zeros + 500_000] = 1;
  expect(() => withoutZeros(other)).toThrow("expected to have zeros");
});

test("another program is refused", () => {
  expect(() => withoutZeros(readFileSync(process.execPath))).toThrow("expected");
  expect(() => withoutZeros(withoutZeros(program))).toThrow("expected");
});
