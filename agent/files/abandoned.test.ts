// An upload whose client was killed in the middle: nobody will finish it, and nobody aborts it.
import { afterEach, expect, test } from "bun:test";
import { newUuidV7 } from "../../broker/contract/index.ts";
import { Deadlines } from "../../broker/endpoint/alarm.ts";
import { Context } from "../../broker/endpoint/context.ts";
import { SILENT } from "../../broker/endpoint/log.ts";
import { IDLE_MS, Uploads } from "../../broker/endpoint/upload.ts";
import type { Link } from "../../broker/link/link.ts";
import { until } from "../../broker/server/testing.ts";
import { cleanUp, drafts, openBelow, scene, written } from "./testing.ts";

afterEach(cleanUp);

test("its draft goes when nobody has touched the transfer for a minute, and not before", async () => {
  const { root, files } = scene();
  let nowMs = 1_000;
  const now = () => nowMs;
  const deadlines = new Deadlines(now);
  const names = { tenant: "t", sandbox: "sb-1", incarnation: "i" };
  const context = new Context({ ...names, link: {} as Link, log: SILENT, deadlines, now });
  const uploads = new Uploads(context);
  const transfer = newUuidV7();
  const part = (offset: number) =>
    uploads.part({
      transfer,
      target: "write big",
      offset,
      data: Buffer.alloc(100_000, 1),
      last: false,
      open: () => files.write({ ...written, path: "big" }),
    });
  /** Lets the endpoint look at its deadlines, as it does whenever anything else is due. */
  const look = () =>
    new Promise<void>((resolve) => {
      const alarm = { dueMs: 0, list: undefined, before: undefined, after: undefined, expired: resolve };
      deadlines.set(alarm, 1);
      nowMs += 1;
    });
  try {
    await part(0);
    expect(drafts(root).length).toBe(1);
    nowMs += IDLE_MS - 100;
    await look();
    expect(drafts(root).length).toBe(1);
    nowMs += 100;
    await look();
    await until("the draft is gone", () => drafts(root).length === 0);
    expect(openBelow(root)).toEqual([]);
    expect(await part(100_000).catch((error: unknown) => error)).toMatchObject({ code: "not_found" });
  } finally {
    deadlines.close();
  }
});
