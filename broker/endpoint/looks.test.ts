// What looks into files for long, and whoever asked for it is gone.
import { expect, test } from "bun:test";
import type { Alarm } from "./alarm.ts";
import type { Context, Reply } from "./context.ts";
import { Looks } from "./looks.ts";

const reply = (connection: string): Reply => ({
  subject: `rep.v1.acme.sb-a.ann.${connection}.1`,
  encoding: "msgpack",
});

/** Works until it is stopped. */
const endless = (signal: AbortSignal) =>
  new Promise<never>((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));

test("goes on while anything is heard from its connection, and ends when nothing is", async () => {
  const alarms = new Set<Alarm>();
  const deadlines = {
    set: (alarm: Alarm) => void alarms.add(alarm),
    clear: (alarm: Alarm) => void alarms.delete(alarm),
  };
  const looks = new Looks({ deadlines } as unknown as Context);
  const due = () => {
    for (const alarm of [...alarms]) alarm.expired();
  };
  const ended: string[] = [];
  const look = (name: string, transfer: string | undefined) =>
    looks.run(reply(name), transfer, endless).catch((error) => ended.push(`${name}: ${error.code}`));
  const [here, gone] = [look("here", "a"), look("gone", "b"), look("nameless", undefined)];
  for (let times = 0; times < 5; times++) {
    due();
    looks.heard(reply("here").subject);
  }
  await gone;
  expect(ended).toEqual(["gone: canceled"]);
  expect([looks.abort("b"), looks.abort("a")]).toEqual([false, true]);
  await here;
  expect(ended).toEqual(["gone: canceled", "here: canceled"]);
  expect(alarms.size).toBe(0);
});
