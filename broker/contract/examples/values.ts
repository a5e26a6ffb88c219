// Examples of what is not a message: bodies, subjects, ids, errors and outcomes.
import * as c from "../index.ts";
import { ID, ID2, LIFE } from "./example.ts";

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");
const utf8 = (text: string): string => hex(Buffer.from(text));

/** Bodies as hex: what decoding makes of them, or that it refuses them. */
export function bodyVectors() {
  const bodies: [name: string, body: string][] = [
    ["nothing stands for the empty map", ""],
    ["an empty map", "80"],
    ["an empty JSON map", utf8("{}")],
    ["JSON with space and nesting", utf8('{ "a": [1, {"b": null}], "ü": "\\u0041" }')],
    ["an integer of 64 bits", "81a161cf000000012a05f200"],
    ["a float that is whole", "81a161cb4014000000000000"],
    ["a float of 32 bits", "81a161ca3fc00000"],
    ["a map with a long header", "df00000001a16101"],
    ["a list", "9101"],
    ["a number", "05"],
    ["nil", "c0"],
    ["a string", "a161"],
    ["binary", "c403000102"],
    ["cut off in a string", "81a3616263a5"],
    ["cut off in a map", "82a16101"],
    ["a byte too much", "81a1610100"],
    ["a byte that MessagePack never uses", "c1"],
    ["a string of 2 GiB that is not there", "81a161db7fffffff"],
    ["a list of 4 Gi that is not there", "81a161ddffffffff01"],
    ["JSON cut off", utf8('{"a": 1')],
    ["JSON with a tail", utf8('{"a": 1} x')],
    ["JSON without quotes", utf8("{a: 1}")],
    ["an HTTP request", utf8("GET / HTTP/1.1\r\n\r\n")],
  ];
  return bodies.map(([name, body]) => {
    try {
      return { name, body, decoded: c.decode(Buffer.from(body, "hex")) };
    } catch (thrown) {
      const { code, field } = c.toSandmeshError(thrown);
      return { name, body, code, field };
    }
  });
}

const BAD_IDS = ["", "A", "-a", "a.b", "a*", ">", "a b", "ü", "a_b", "a\n", "a\0", "a/b", "x".repeat(64)];
const GOOD_IDS = ["a", "0", "a-b", "sb-0123456789abc", "x".repeat(63), "a--", "pool"];

export function idVectors() {
  const uuids = [
    [ID, true],
    [ID2, true],
    [ID.toUpperCase(), false],
    [`${ID}\n`, false],
    [ID.replace("-7c3d", "-4c3d"), false],
    [ID.replace("-8e4f", "-ce4f"), false],
    [ID.replaceAll("-", ""), false],
    ["", false],
  ] as const;
  return {
    valid: GOOD_IDS,
    invalid: BAD_IDS,
    uuids: uuids.map(([id, valid]) => ({ id, valid, ...(valid ? { time_ms: c.uuidV7Time(id) } : {}) })),
  };
}

export function subjectVectors() {
  const built = {
    sandbox: { args: ["default", "sb-1", "exec"], subject: c.sandboxSubject("default", "sb-1", "exec") },
    sandbox_wildcard: { args: ["default", "sb-1"], subject: c.sandboxWildcard("default", "sb-1") },
    control: { args: ["t", "sb-1", "grant"], subject: c.controlSubject("t", "sb-1", "grant") },
    control_wildcard: { args: ["t", "sb-1"], subject: c.controlWildcard("t", "sb-1") },
    pool: { args: ["default", "acquire"], subject: c.poolSubject("default", "acquire") },
    enrol: { args: ["default", "sb-1"], subject: c.enrolSubject("default", "sb-1") },
    reply: { args: ["t", "sb-1", "ann", "x.1"], subject: c.replySubject("t", "sb-1", "ann", "x.1") },
    reply_prefix: { args: ["t", "pool", "ann"], subject: c.replyPrefix("t", "pool", "ann") },
    reply_wildcard: { args: ["t", "ann"], subject: c.replyWildcard("t", "ann") },
    pool_event: { args: ["t", "draining"], subject: c.poolEventSubject("t", "draining") },
    run_event: { args: ["t", "r", "granted"], subject: c.runEventSubject("t", "r", "granted") },
    sandbox_event: { args: ["t", "sb-1", "ready"], subject: c.sandboxEventSubject("t", "sb-1", "ready") },
    event_wildcard: { args: ["t"], subject: c.eventWildcard("t") },
  };
  const refused = BAD_IDS.flatMap((bad) => [
    { build: "sandbox", args: [bad, "sb-1", "exec"], field: "tenant" },
    { build: "sandbox", args: ["t", bad, "exec"], field: "sandbox" },
    { build: "reply_wildcard", args: ["t", bad], field: "user" },
    { build: "run_event", args: ["t", bad, "granted"], field: "run" },
  ]);
  const verbs = ["Exec", "exec.x", "*", "", "9", "a b"];
  const refusedVerbs = verbs.map((bad) => ({ build: "sandbox", args: ["t", "sb-1", bad], field: "verb" }));
  const subjects = [
    ...Object.values(built).map((b) => b.subject),
    "sbx.v2.t.sb-1.exec",
    "sbx.v1.t.sb-1",
    "sbx.v1.t.sb-1.exec.more",
    "sbx.v1.T.sb-1.exec",
    "rep.v1.t.sb-1.ann",
    "rep.v1.t.sb-1.ann..x",
    "rep.v1.t.sb-1.ann.*",
    "rep.v1.t.sb-1.ann.>",
    "evt.v1.t.box.sb-1.ready",
    "_INBOX.abc",
    "",
  ];
  return {
    built,
    refused: [...refused, ...refusedVerbs],
    parsed: subjects.map((subject) => ({ subject, parsed: c.parseSubject(subject) ?? null })),
    reply_for: [
      ["rep.v1.t.sb-1.ann.x", "t", "sb-1"],
      ["rep.v1.t.sb-2.ann.x", "t", "sb-1"],
      ["rep.v1.u.sb-1.ann.x", "t", "sb-1"],
      ["rep.v1.t.sb-1.ann.*", "t", "sb-1"],
      ["sbx.v1.t.sb-1.exec", "t", "sb-1"],
    ].map(([reply = "", tenant = "", responder = ""]) => ({
      reply,
      tenant,
      responder,
      ok: c.isReplyFor(reply, tenant, responder),
    })),
  };
}

export function errorVectors() {
  const detail = { field: "spec.image", sandbox: "sb-1", reason: "queued", started: "unknown" } as const;
  const classes = Object.entries(c.ERROR_CLASSES).map(([code, Class]) => {
    const error = new Class("what happened", detail);
    return { code, class: Class.name, retryable: error.retryable, wire: error.toWire() };
  });
  const later = c.fromWire({ code: "of_a_later_version", message: "new", retryable: true, sandbox: "sb-1" });
  const answers = [
    {
      name: "an error in MessagePack",
      error: new c.LeaseLostError("gone", { started: "no", sandbox: "sb-1" }),
    },
    { name: "an error of a later version", error: later },
  ].map(({ name, error }) => {
    const wire =
      name === "an error of a later version"
        ? { code: "of_a_later_version", message: "new", retryable: true, sandbox: "sb-1" }
        : error.toWire();
    return {
      name,
      body: hex(c.encode({ error: wire })),
      code: error.code,
      message: error.message,
      sandbox: error.sandbox,
      ...(error.started === undefined ? {} : { started: error.started }),
    };
  });
  return { classes, answers };
}

export function outcomeVectors() {
  const outcomes: c.Outcome[] = [
    { type: "exited", code: 0 },
    { type: "exited", code: 137 },
    { type: "exited", code: 255 },
    { type: "signaled", signal: "SIGKILL", core_dumped: false },
    { type: "signaled", signal: "SIGSEGV", core_dumped: true },
    { type: "timed_out", after_ms: 2000, killed: 3, signal: "SIGTERM" },
    { type: "canceled", killed: 1, signal: "SIGKILL" },
    { type: "oom_killed" },
    { type: "oom_killed", limit_bytes: 67_108_864 },
    { type: "output_limit", stream: "stderr", limit_bytes: 1024 },
    ...c.NOT_STARTED_REASONS.map((reason) => ({ type: "not_started", reason, message: "why" }) as const),
  ];
  return outcomes.map((outcome) => ({
    outcome,
    incarnation: LIFE,
    describe: c.describeOutcome(outcome),
    status: c.shellStatus(outcome),
  }));
}
