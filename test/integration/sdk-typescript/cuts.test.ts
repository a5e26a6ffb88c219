// A long output whose way is cut in the middle, at either end or at the server, arrives whole.
import { expect, test } from "bun:test";
import { createHash } from "node:crypto";
import type { CommandStream, Sandbox } from "../../../sdk/typescript/mod.ts";
import { cuttable } from "../../cuttable.ts";
import { liveMesh } from "./mesh.ts";

const LONG = 120_000;
const MiB = 1024 * 1024;
/** 64 MiB in lines that are all told apart. */
const LINE = "seq 10000000 17456539";
const EXPECTED = Bun.spawnSync(["sh", "-c", `${LINE} | sha256sum; ${LINE} | wc -c`])
  .stdout.toString()
  .split(/\s+/);

/** Reads to the end, and calls `at` each time so much more has come. */
async function reading(stream: CommandStream, every: number, at: () => Promise<void> | void) {
  const hash = createHash("sha256");
  let bytes = 0;
  let cuts = 0;
  for await (const chunk of stream) {
    expect(chunk.offset).toBe(bytes);
    hash.update(chunk.data);
    bytes += chunk.data.length;
    if (bytes < (cuts + 1) * every) continue;
    cuts++;
    await at();
  }
  return { end: await stream.end, cuts, got: [hash.digest("hex"), "-", String(bytes)] };
}

function whole({ end, cuts, got }: Awaited<ReturnType<typeof reading>>): void {
  expect(end.ok).toBe(true);
  expect(got).toEqual(EXPECTED.slice(0, 3));
  expect(cuts).toBeGreaterThan(2);
}

/** `read` reads from a sandbox, and may cut its way there. */
async function byAWay(read: (box: Sandbox, cut: () => void) => ReturnType<typeof reading>): Promise<void> {
  await using live = await liveMesh();
  await using way = await cuttable(live.server.port);
  // Closed before its way is.
  await using mesh = await live.connect({ url: way.url });
  whole(await read(await mesh.acquire({ image: "host" }), way.cut));
}

test(
  "the reader's connection is cut while output streams: not a byte is lost",
  () => byAWay((box, cut) => reading(box.stream(LINE), 15 * MiB, cut)),
  LONG,
);

test(
  "the reader's connection is cut while it follows a detached command: not a byte is lost",
  () =>
    byAWay(async (box, cut) => {
      const command = await box.start(`read go; ${LINE}`, { stdinOpen: true, outputLimit: 128 * MiB });
      const following = reading(command.attach(), 15 * MiB, cut);
      await command.stdin.write("\n");
      return await following;
    }),
  LONG,
);

test(
  "the sandbox's own connection is cut while output streams: not a byte is lost",
  async () => {
    await using live = await liveMesh({ cuttable: true });
    const mesh = await live.connect();
    const box = await mesh.acquire({ image: "host" });
    whole(await reading(box.stream(LINE), 15 * MiB, () => live.daemonsWay?.cut()));
  },
  LONG,
);

test(
  "the server is killed and started while output streams: not a byte is lost",
  async () => {
    await using live = await liveMesh();
    const mesh = await live.connect();
    const box = await mesh.acquire({ image: "host" });
    const restart = async () => {
      await live.server.kill();
      await live.server.restart();
    };
    whole(await reading(box.stream(LINE), 20 * MiB, restart));
  },
  LONG,
);
