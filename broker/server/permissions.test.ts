// Each role against each foreign subject and reply subject: the server refuses it, not our own code.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { PermissionDeniedError } from "../contract/index.ts";
import type { Link } from "../link/link.ts";
import { type TestServer, testServer } from "./testing.ts";

/** What each role is, in this test: user ann, operator root and sandbox sb-1 of acme. */
type Who = "user" | "operator" | "observer" | "pool" | "bootstrap" | "sandbox";
const ALL: readonly Who[] = ["user", "operator", "observer", "pool", "bootstrap", "sandbox"];

/** Subjects, and who may publish to them: everyone else is refused. */
const PUBLISH: readonly [subject: string, may: readonly Who[]][] = [
  ["sbx.v1.acme.sb-1.exec", ["user", "operator"]],
  ["sbx.v1.acme.sb-2.exec", ["user", "operator"]],
  ["sbx.v1.other.sb-1.exec", []],
  ["sbx.v1.acme.sb-1.ping", ["user", "operator", "pool"]],
  ["sbx.v1.other.sb-1.ping", ["pool"]],
  ["ctl.v1.acme.sb-1.release", ["pool"]],
  ["ctl.v1.other.sb-9.release", ["pool"]],
  ["pool.v1.acme.acquire", ["user", "operator"]],
  ["pool.v1.acme.drain", ["operator"]],
  ["pool.v1.other.drain", []],
  // Whatever stands in place of the verb, the pool takes it for none.
  ["pool.v1.acme.drain.x", ["user", "operator"]],
  ["chk.v1.operator", ["pool"]],
  ["pool.v1.other.acquire", []],
  ["enr.v1.acme.sb-1", ["bootstrap"]],
  ["enr.v1.acme.sb-2", []],
  ["enr.v1.other.sb-1", []],
  ["rep.v1.acme.sb-1.ann.x", ["sandbox"]],
  ["rep.v1.acme.sb-1.pool.x", ["sandbox"]],
  ["rep.v1.acme.sb-2.ann.x", []],
  ["rep.v1.acme.pool.ann.x", ["pool"]],
  ["rep.v1.other.pool.bob.x", ["pool"]],
  ["rep.v1.other.sb-1.bob.x", []],
  ["evt.v1.acme.pool.draining", ["pool"]],
  ["evt.v1.acme.run.r1.lost", ["pool"]],
  ["evt.v1.acme.sbx.sb-1.ready", ["sandbox"]],
  ["evt.v1.acme.sbx.sb-2.ready", []],
  ["evt.v1.other.sbx.sb-1.ready", []],
  ["rec.v1.default.x", ["pool"]],
  ["inb.v1.pool.x.1", []],
  ["adv.v1.disconnect", []],
  ["$JS.API.INFO", ["pool"]],
  ["$JS.API.STREAM.DELETE.REC", ["pool"]],
  ["$SYS.REQ.ACCOUNT.PING.CONNZ", ["pool"]],
  ["$SYS.REQ.SERVER.PING.CONNZ", []],
  ["$SYS.REQ.SERVER.PING", []],
  ["$SYS.ACCOUNT.X.DISCONNECT", []],
  ["$SYS.REQ.USER.INFO", []],
  ["_INBOX.x", []],
  ["anything.else", []],
];

const SUBSCRIBE: readonly [subject: string, may: readonly Who[]][] = [
  [">", []],
  ["*.>", []],
  ["sbx.v1.acme.sb-1.*", ["sandbox"]],
  // The server lets `>` stand where `*` is allowed last; it reaches nobody else's subjects.
  ["sbx.v1.acme.sb-1.>", ["sandbox"]],
  ["sbx.v1.acme.>", []],
  ["sbx.v1.*.sb-1.*", []],
  ["sbx.v1.acme.sb-2.*", []],
  ["sbx.v1.acme.*.*", []],
  ["sbx.v1.>", []],
  ["ctl.v1.acme.sb-1.*", ["sandbox"]],
  ["ctl.v1.acme.sb-2.*", []],
  ["rep.v1.acme.*.ann.>", ["user"]],
  ["rep.v1.acme.sb-1.ann.1.>", ["user"]],
  ["rep.v1.acme.*.root.>", ["operator"]],
  ["rep.v1.acme.pool.root.>", ["operator"]],
  ["rep.v1.other.*.root.>", []],
  ["rep.v1.acme.*.bob.>", []],
  ["rep.v1.acme.*.*.>", []],
  ["rep.v1.other.*.ann.>", []],
  ["rep.v1.acme.>", []],
  ["rep.v1.acme.pool.sb-1.>", ["bootstrap"]],
  ["rep.v1.acme.*.sb-1.>", []],
  ["rep.v1.acme.pool.sb-2.>", []],
  ["rep.v1.acme.sb-1.pool.>", ["pool"]],
  ["pool.v1.acme.*", ["pool"]],
  ["pool.v1.*.*", ["pool"]],
  ["enr.v1.*.*", ["pool"]],
  ["enr.v1.acme.sb-1", ["pool"]],
  ["evt.v1.acme.>", ["user", "operator", "observer"]],
  ["evt.v1.other.>", []],
  ["evt.v1.*.sbx.*.ready", ["pool"]],
  ["chk.v1.operator", []],
  ["rec.v1.>", []],
  ["inb.v1.pool.abc.>", ["pool"]],
  ["adv.v1.*", ["pool"]],
  ["$SYS.>", []],
  ["$JS.>", []],
  ["_INBOX.>", []],
];

let server: TestServer;
const links = new Map<Who, Link>();
/** What the server refused, of each role, as it reported it. */
const refused = new Map<Who, string[]>();

beforeAll(async () => {
  server = await testServer();
  for (const who of ALL) {
    const list: string[] = [];
    refused.set(who, list);
    const onError = (error: unknown) =>
      list.push(error instanceof PermissionDeniedError ? error.message : `? ${error}`);
    const open = {
      user: () => server.user("acme", "ann", { onError }),
      operator: () => server.operator("acme", "root", { onError }),
      observer: () => server.observer("acme", { onError }),
      pool: () => server.pool({ onError }),
      bootstrap: () => server.bootstrap("acme", "sb-1", { onError }),
      sandbox: () => server.sandbox("acme", "sb-1", { onError }),
    }[who];
    links.set(who, await open());
  }
});
afterAll(() => server.close());

function linkOf(who: Who): Link {
  const link = links.get(who);
  if (link === undefined) throw new Error(`no link of ${who}`);
  return link;
}

/** What the server refused of `who` while `act` ran; the flush is behind it on the same connection. */
async function refusedDuring(who: Who, act: (link: Link) => void): Promise<string[]> {
  const list = refused.get(who) ?? [];
  list.length = 0;
  const link = linkOf(who);
  act(link);
  await link.flush();
  return [...list];
}

for (const who of ALL) {
  describe(who, () => {
    for (const [subject, may] of PUBLISH) {
      const allowed = may.includes(who);
      test(`${allowed ? "may" : "may not"} publish to ${subject}`, async () => {
        const seen = await refusedDuring(who, (link) => link.publish(subject, Buffer.from("x")));
        expect(seen).toEqual(allowed ? [] : [`this credential may not publish to ${subject}`]);
      });
    }
    for (const [subject, may] of SUBSCRIBE) {
      const allowed = may.includes(who);
      test(`${allowed ? "may" : "may not"} subscribe ${subject}`, async () => {
        let subscription: { unsubscribe(): void } | undefined;
        const seen = await refusedDuring(who, (link) => {
          subscription = link.subscribe(subject, () => {});
        });
        subscription?.unsubscribe();
        expect(seen).toEqual(allowed ? [] : [`this credential may not subscribe ${subject}`]);
      });
    }
  });
}

/** Reply subjects that an attacker may name, to have the answerer publish there in its place. */
const FOREIGN_REPLIES = [
  "sbx.v1.other.sb-9.exec",
  "sbx.v1.acme.sb-2.exec",
  "ctl.v1.acme.sb-2.release",
  "pool.v1.acme.release",
  "enr.v1.acme.sb-2",
  "rep.v1.other.sb-1.bob.x",
  "rep.v1.acme.sb-2.ann.x",
  "evt.v1.acme.run.r1.lost",
  "evt.v1.acme.sbx.sb-2.ready",
  "rec.v1.default.x",
  "$JS.API.STREAM.DELETE.REC",
  "_INBOX.x",
];

describe("a request that names a foreign reply subject", () => {
  for (const reply of FOREIGN_REPLIES) {
    test(`does not make a sandbox publish to ${reply}`, async () => {
      const box = linkOf("sandbox");
      const seen = refused.get("sandbox") ?? [];
      seen.length = 0;
      const answered = new Promise<void>((done) => {
        const subscription = box.subscribe("sbx.v1.acme.sb-1.*", (message) => {
          message.respond(Buffer.from("answer"));
          subscription.unsubscribe();
          done();
        });
      });
      await box.flush();
      linkOf("user").publish("sbx.v1.acme.sb-1.exec", Buffer.from("{}"), { reply });
      await answered;
      await box.flush();
      expect(seen).toEqual([`this credential may not publish to ${reply}`]);
    });
  }

  // The pool may publish to records and JetStream on its own account: it must look at the reply itself (isReplyFor).
  for (const reply of FOREIGN_REPLIES.filter((each) => !/^(ctl|rec|\$JS|evt.v1.acme.run)/.test(each))) {
    test(`does not make the pool publish to ${reply}`, async () => {
      const pool = linkOf("pool");
      const seen = refused.get("pool") ?? [];
      seen.length = 0;
      const answered = new Promise<void>((done) => {
        const subscription = pool.subscribe("pool.v1.*.*", (message) => {
          message.respond(Buffer.from("answer"));
          subscription.unsubscribe();
          done();
        });
      });
      await pool.flush();
      linkOf("user").publish("pool.v1.acme.list", Buffer.from("{}"), { reply });
      await answered;
      await pool.flush();
      expect(seen).toEqual([`this credential may not publish to ${reply}`]);
    });
  }
});

test("a sandbox that opens more subscriptions than it needs is refused them", async () => {
  const errors: unknown[] = [];
  const box = await server.sandbox("acme", "sb-7", { onError: (error) => errors.push(error) });
  for (let i = 0; i < 5; i++) box.subscribe("sbx.v1.acme.sb-7.*", () => {});
  await box.flush();
  expect(String(errors[0])).toContain("maximum subscriptions exceeded");
});
