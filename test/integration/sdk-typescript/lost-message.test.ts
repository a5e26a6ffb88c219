// The connection is cut at one message, and what was sent behind that arrives: nothing of an upload or of a command's input
// is left out, and no command waits for what does not come.
import { expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Program, type Runtime } from "../../../sdk/typescript/testing/harness.ts";
import { type Cuttable, cuttable } from "../../cuttable.ts";
import { liveMesh } from "./mesh.ts";

const ALL = 3_000_000;
const COUNTED = { outcome: { type: "exited", code: 0 }, bytes: ALL };

/** What is lost → the program's scenario and what must come of it. */
const LOST: [what: string, scenario: string, result: object][] = [
  ["the first part of a file from a source", "write", { bytes: ALL, size: ALL }],
  ["the first part of an archive", "unpack", { same: true }],
  ["the first part of a folder", "upload", { files: 2_000 }],
  ["the request of a command with much stdin", "exec", COUNTED],
  ["the request of a command whose stdin comes from a source", "source", COUNTED],
  ["the request of a session's command with much stdin", "session", COUNTED],
  ["the request of a stream with much stdin", "stream", COUNTED],
  [
    "the request, and a line, of a command that is typed to",
    "typed",
    { heard: "first\nsecond\nthird\n", outcome: { type: "exited", code: 0 } },
  ],
  ["the request of a forwarded connection", "forward", { heard: "hello" }],
];

/** The way as the program's to cut, told by HTTP. */
function orders(way: Cuttable) {
  let cut: Promise<void> = Promise.resolve();
  let closed: { open(): void } | undefined;
  const server = Bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    idleTimeout: 60,
    async fetch({ url }) {
      const [, order, verb = ""] = new URL(url).pathname.split("/");
      if (order === "at") cut = way.cutAt(verb);
      if (order === "cut") await cut;
      if (order === "block") closed = way.block();
      if (order === "open") closed?.open();
      return new Response("done");
    },
  });
  return { url: server.url.origin, [Symbol.asyncDispose]: () => server.stop(true) };
}

for (const runtime of ["bun", "node"] as Runtime[])
  test.each(LOST)(
    `${runtime}: %s is lost: all comes`,
    async (_what, scenario, result) => {
      await using live = await liveMesh();
      await using way = await cuttable(live.server.port);
      await using orderly = orders(way);
      const folder = await mkdtemp(join(tmpdir(), "sandmesh-lost-"));
      try {
        const env = { SANDMESH_URL: way.url, WAY: orderly.url, FOLDER: folder };
        await using program = await Program.start(runtime, live.server, scenario, env, "lost-message.mjs");
        expect(await program.step("done")).toEqual({ step: "done", ...result });
        expect(await program.exited).toEqual({ code: 0, signal: null });
      } finally {
        await rm(folder, { recursive: true });
      }
    },
    60_000,
  );
