// A call that is aborted in its midst, by a mesh that answers: it ends, whoever feeds it is told, and nothing half is left.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { until } from "../../../broker/server/testing.ts";
import { FileError, type Mesh, type Sandbox, SandboxLostError } from "../../../sdk/typescript/mod.ts";
import { begin, expectCanceled, read, running, turns } from "./aborting.ts";
import { liveMesh } from "./mesh.ts";

const SPEC = { image: "host" } as const;
const LONG = 120_000;

let live: Awaited<ReturnType<typeof liveMesh>>;
let mesh: Mesh;
let box: Sandbox;
beforeAll(async () => {
  live = await liveMesh();
  mesh = await live.connect();
  box = await mesh.acquire(SPEC);
}, LONG);
afterAll(() => live[Symbol.asyncDispose](), LONG);

/** Gives `pieces`, then nothing more until it is told that it is over. */
function silentSource(...pieces: Uint8Array[]) {
  const source = { asked: false, returned: false };
  const iterator: AsyncIterator<Uint8Array> = {
    next() {
      const value = pieces.shift();
      if (value !== undefined) return Promise.resolve({ value, done: false });
      source.asked = true;
      return new Promise(() => undefined);
    },
    return() {
      source.returned = true;
      return Promise.resolve({ value: undefined, done: true });
    },
  };
  return Object.assign(source, { [Symbol.asyncIterator]: () => iterator });
}

const PIECE = new Uint8Array(600 * 1024);
const fed: Record<string, (source: AsyncIterable<Uint8Array>, signal: AbortSignal) => Promise<unknown>> = {
  write: (source, signal) => box.files.write("slow/file", source, { signal }),
  append: (source, signal) => box.files.write("slow-appended", source, { signal, append: true }),
  unpack: (source, signal) => box.files.unpack("slow", source, { signal }),
  exec: (stdin, signal) => box.exec("cat", { stdin, signal }),
  stream: (stdin, signal) => read(box.stream("cat", { stdin, signal })),
};

describe("while a source's next piece is waited for", () => {
  for (const [name, call] of Object.entries(fed)) {
    test(
      `an aborted ${name} ends, its source is told, and nothing half is left`,
      async () => {
        await box.files.mkdir("slow");
        const source = silentSource(PIECE);
        const started = begin(name, (signal) => call(source, signal));
        await until("it waits", () => source.asked);
        await turns();
        expect(started.pending).toBe(true);
        started.control.abort("enough");
        await expectCanceled([started]);
        expect(source.returned).toBe(true);
        await until("nothing is left", async () => (await box.files.list("slow")).length === 0);
        await box.files.remove("slow", { recursive: true });
      },
      LONG,
    );
  }

  test(
    "a started command whose input is not all sent yet ends, and its source is told",
    async () => {
      const control = new AbortController();
      const source = silentSource(PIECE);
      const command = await box.start("cat >/dev/null", { stdin: source, signal: control.signal });
      await until("it waits", () => source.asked);
      control.abort();
      expect((await command.wait()).outcome.type).toBe("canceled");
      expect(source.returned).toBe(true);
    },
    LONG,
  );

  test(
    "what the sandbox refuses is told then, and so is its loss",
    async () => {
      const refused = silentSource(PIECE);
      await expect(box.files.write("/proc/sandmesh-no/file", refused)).rejects.toBeInstanceOf(FileError);
      expect(refused.returned).toBe(true);
      const doomed = await mesh.acquire(SPEC);
      const source = silentSource(PIECE);
      const writing = doomed.files.write("file", source).catch((error: unknown) => error);
      await until("it waits", () => source.asked);
      await mesh.release({ sandbox: doomed.id });
      expect(await writing).toBeInstanceOf(SandboxLostError);
      expect(source.returned).toBe(true);
    },
    LONG,
  );
});

test(
  "an aborted write to stdin leaves neither a gap nor what was never begun; what is written after it is taken",
  async () => {
    const command = await box.start("until [ -e go ]; do sleep 0.05; done; cat | tail -c 12", {
      stdinOpen: true,
    });
    const first = begin("first", (signal) => command.stdin.write(new Uint8Array(1024 * 1024), { signal }));
    const second = begin("second", (signal) => command.stdin.write("never begun!", { signal }));
    await turns();
    expect([first.pending, second.pending]).toEqual([true, true]);
    for (const { control } of [second, first]) control.abort("enough");
    await expectCanceled([first, second]);
    const third = command.stdin.write("and then it!");
    await box.files.write("go", "");
    await third;
    await command.stdin.close();
    expect((await command.wait()).stdout.text).toBe("and then it!");
  },
  LONG,
);

test(
  "a stream is canceled while its reader is busy with a chunk, and so is one that nobody reads",
  async () => {
    const control = new AbortController();
    const { signal } = control;
    const unread = box.stream("true", { signal });
    const stream = box.stream("echo here; sleep 600", { signal });
    for await (const _ of stream) {
      control.abort("enough");
      await expect(stream.end).rejects.toMatchObject({ code: "canceled", cause: "enough", started: "yes" });
      await until("it is over", async () => !(await running(box)).includes(stream.id));
      break;
    }
    await expect(unread.end).rejects.toMatchObject({ code: "canceled", cause: "enough", started: "no" });
  },
  LONG,
);

test(
  "a terminal ends with its signal, whoever reads it",
  async () => {
    const control = new AbortController();
    const terminal = await box.terminal({ signal: control.signal });
    control.abort("enough");
    await expect(terminal.end).rejects.toMatchObject({ code: "canceled", cause: "enough" });
    await until("it is over", async () => !(await running(box)).includes(terminal.command.id));
  },
  LONG,
);
