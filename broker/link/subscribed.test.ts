// What the server refuses reaches who subscribed it.
import { expect, test } from "bun:test";
import { cuttable } from "../../test/cuttable.ts";
import { PermissionDeniedError } from "../contract/core.ts";
import { testServer, until } from "../server/testing.ts";
import type { Link } from "./link.ts";

/** A user's (broker/server/permissions.ts). */
const MAX = 64;

function subscriber(link: Link) {
  const refused: string[] = [];
  const heard: string[] = [];
  const subscribe = (subject: string) =>
    link.subscribe(subject, () => heard.push(subject), {
      refused: (error) => {
        expect(error).toBeInstanceOf(PermissionDeniedError);
        expect(error).toMatchObject({ reason: "subscribe" });
        refused.push(subject);
      },
    });
  return { refused, heard, subscribe };
}

test("of subscriptions beyond the limit each one's maker is told, and no other; all others go on", async () => {
  await using server = await testServer();
  const faults: unknown[] = [];
  const link = await server.user("acme", "ann", { onError: (error) => faults.push(error) });
  const { refused, heard, subscribe } = subscriber(link);
  const subjects = Array.from({ length: MAX + 6 }, (_, i) => `evt.v1.acme.run.r-${i}.lost`);
  const all = subjects.map(subscribe);
  // One that is ended at once is still refused, and its maker wants to know nothing of it.
  all.at(-1)?.unsubscribe();
  await link.flush();
  expect(refused).toEqual(subjects.slice(MAX, -1));
  const pool = await server.pool();
  for (const subject of subjects) pool.publish(subject, new Uint8Array(1));
  await pool.flush();
  await until("all are heard", () => heard.length >= MAX);
  expect(heard).toEqual(subjects.slice(0, MAX));
  // With one less there is room for one.
  all[0]?.unsubscribe();
  subscribe("evt.v1.acme.run.later.lost");
  subscribe("evt.v1.acme.run.too-many.lost");
  await link.flush();
  expect(refused.slice(5)).toEqual(["evt.v1.acme.run.too-many.lost"]);
  expect(faults).toEqual([]);
});

test("of a subject that it may not hear the maker of the subscription is told, and no other", async () => {
  await using server = await testServer();
  const faults: unknown[] = [];
  const link = await server.user("acme", "ann", { onError: (error) => faults.push(error) });
  const { refused, subscribe } = subscriber(link);
  subscribe("evt.v1.acme.run.r.lost");
  subscribe("evt.v1.other.run.r.lost");
  subscribe("evt.v1.other.run.r.gone").unsubscribe();
  await link.flush();
  expect([refused, faults]).toEqual([["evt.v1.other.run.r.lost"], []]);
});

test("where more than may be are subscribed anew with the connection no maker hears nothing in silence", async () => {
  await using server = await testServer();
  await using way = await cuttable(server.port);
  const link = await server.user("acme", "ann", { urls: [way.url], onError: () => undefined });
  const { refused, subscribe } = subscriber(link);
  let up = true;
  link.onStatus((connected) => {
    up = connected;
  });
  const subjects = Array.from({ length: MAX + 1 }, (_, i) => `evt.v1.acme.run.r-${i}.lost`);
  for (const subject of subjects.slice(0, MAX)) subscribe(subject);
  await link.flush();
  const blocked = way.block();
  await until("it is cut", () => !up);
  subscribe(subjects[MAX] ?? "");
  blocked.open();
  await until("all are told", () => refused.length > 0, 20_000);
  // Which one the server means it does not say.
  expect(refused.sort()).toEqual(subjects.sort());
});
