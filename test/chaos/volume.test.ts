// Much data, and readers that stall: what the daemon holds of it stays small.
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { buildDaemon } from "../../agent/build.ts";
import { homePaths } from "../../deploy/local/home.ts";
import type { Mesh, Sandbox } from "../../sdk/typescript/mod.ts";
import { eventually } from "../e2e/program.ts";
import { Client } from "./client-process.ts";
import { ChaosMesh, LONG } from "./mesh.ts";

setDefaultTimeout(240_000);
const MIB = 1024 * 1024;

let mesh: ChaosMesh;
let client: Mesh;
beforeAll(async () => {
  buildDaemon();
  mesh = await ChaosMesh.start();
  client = await mesh.connect({ lease: 60_000 });
});
afterAll(() => mesh?.[Symbol.asyncDispose]());

/** The most private dirty memory of a sandbox's daemon that was seen, beyond what it had at first, MiB. */
class Growth {
  readonly #path: string;
  readonly #first: number;
  most = 0;

  constructor(sandbox: string) {
    this.#path = `/proc/${mesh.sandboxPid(sandbox, "daemon")}/smaps_rollup`;
    this.#first = this.#now();
  }

  #now(): number {
    return Number(/^Private_Dirty:\s+(\d+) kB/m.exec(readFileSync(this.#path, "utf8"))?.[1]) / 1024;
  }

  look(): void {
    this.most = Math.max(this.most, this.#now() - this.#first);
  }
}

/** Blocks that are all different, so that one that is lost, doubled or moved shows in the hash. */
function* blocks(bytes: number, growth: Growth): Generator<Uint8Array> {
  const block = Buffer.alloc(MIB, "sandmesh ");
  for (let i = 0; i < bytes / MIB; i++) {
    if (i % 16 === 0) growth.look();
    block.writeUInt32LE(i, 0);
    yield Buffer.from(block);
  }
}

test(`${LONG ? "1 GiB" : "128 MiB"} up and down are whole, and the daemon's memory is flat`, async () => {
  await using box = await client.acquire({ image: "host" });
  const bytes = (LONG ? 1024 : 128) * MIB;
  await box.files.write("/tmp/warm", Buffer.alloc(8 * MIB));
  await box.files.read("/tmp/warm");
  const growth = new Growth(box.id);
  const sent = new Bun.CryptoHasher("sha256");
  const content = async function* () {
    for (const block of blocks(bytes, growth)) {
      sent.update(block);
      yield block;
    }
  };
  const began = performance.now();
  expect(await box.files.write("/tmp/large", content())).toBe(bytes);
  const up = performance.now();
  const digest = sent.digest("hex");
  expect((await box.exec("sha256sum < /tmp/large")).stdout.text).toStartWith(digest);
  const got = new Bun.CryptoHasher("sha256");
  let parts = 0;
  const down = performance.now();
  for await (const part of box.files.readStream("/tmp/large")) {
    got.update(part);
    if (parts++ % 64 === 0) growth.look();
  }
  expect(got.digest("hex")).toBe(digest);
  const rate = (ms: number): string => `${Math.round(bytes / MIB / (ms / 1000))} MiB/s`;
  console.log(
    `  up ${rate(up - began)}, down ${rate(performance.now() - down)}, daemon +${growth.most.toFixed(1)} MiB`,
  );
  expect(growth.most).toBeLessThan(24);
});

describe("a reader that takes nothing", () => {
  test("holds up its own command only: the daemon's memory is flat, others are served, and it goes on where it was", async () => {
    await using stalled = new Client("typescript", mesh.home, {
      lease_ms: 60_000,
      command: "seq 100000000",
    });
    await stalled.step("running");
    const [sandbox = ""] = (await stalled.step("acquired")).sandboxes ?? [];
    const box: Sandbox = client.sandbox(sandbox);
    const growth = new Growth(sandbox);
    mesh.freeze(stalled.pid);
    await eventually("its command waits", async () => {
      growth.look();
      return (await box.exec("grep -l pipe /proc/$(pgrep -x seq)/wchan")).ok;
    });
    for (let i = 0; i < 100; i++) {
      expect((await box.exec(["echo", String(i)])).stdout.text).toBe(`${i}\n`);
      growth.look();
    }
    expect(growth.most).toBeLessThan(24);
    mesh.thaw(stalled.pid);
    const before = (await stalled.steps("running")).length;
    await eventually("it goes on", async () => (await stalled.steps("running", before + 20)).length > before);
  });

  test("is cut off by the server, when that has too much for it, and reads on where it was without a gap", async () => {
    const lines = "seq 100000000";
    await using stalled = new Client("typescript", mesh.home, {
      lease_ms: 120_000,
      count: 6,
      command: lines,
    });
    const { sandboxes = [] } = await stalled.step("acquired");
    const textsOf = (sandbox: string): string[] =>
      stalled.seen("running").flatMap((step) => (step.sandbox === sandbox ? [step.text ?? ""] : []));
    /** Until so many bytes of each have been read. */
    const read = (bytes: number) =>
      eventually(`${bytes} bytes of each`, () =>
        sandboxes.every((sandbox) => textsOf(sandbox).reduce((sum, text) => sum + text.length, 0) > bytes),
      );
    await read(MIB);
    const log = join(homePaths(mesh.home).nats, "nats-server.log");
    const cuts = (): number => readFileSync(log, "utf8").match(/Slow Consumer/g)?.length ?? 0;
    const before = cuts();
    mesh.freeze(stalled.pid);
    await eventually("the server has cut it off", () => cuts() > before, 60_000);
    mesh.thaw(stalled.pid);
    // More than all that was on its way.
    await read(12 * MIB);
    await stalled.kill();
    for (const sandbox of sandboxes) {
      const numbers = textsOf(sandbox).join("").split("\n").slice(0, -1);
      expect([sandbox, numbers.findIndex((number, i) => number !== String(i + 1))]).toEqual([sandbox, -1]);
    }
  });
});
