// Commands: at most once, retention, and an answer whatever happens. Against a real server.
import { describe, expect, test } from "bun:test";
import { decode } from "../contract/index.ts";
import { newId } from "./testing.ts";
import { argv, codeOf, MiB, playedSandbox } from "./testing-commands.ts";

const box = playedSandbox({ retention: { outputs: 3, ids: 5, forgotten: 10, bytes: 4 * MiB, running: 8 } });

describe("at most once", () => {
  test("the same id while it runs attaches: one command, two answers", async () => {
    const id = newId();
    const answers = [box.caller.ask("exec", { id, argv }), box.caller.ask("exec", { id, argv })];
    const command = await box.begun();
    await box.settled();
    command.write("once");
    command.exit(2);
    for (const answer of await Promise.all(answers))
      expect(answer).toMatchObject({ id, outcome: { code: 2 } });
    expect(box.executor.commands).toHaveLength(1);
  });

  test("the same id after its end answers the stored result", async () => {
    const id = newId();
    box.executor.script = (command) => {
      command.write("out");
      command.exit(3);
    };
    const first = await box.caller.ask("exec", { id, argv });
    expect(await box.caller.ask("exec", { id, argv })).toEqual(first);
    expect(box.executor.commands).toHaveLength(1);
  });

  test("the same id with other content is a conflict, large or small, and runs nothing", async () => {
    const id = newId();
    const large = newId();
    const long = "y".repeat(5000);
    box.executor.script = (command) => command.exit();
    await box.caller.ask("exec", { id, argv, env: { A: "1", B: "2" } });
    await box.caller.ask("exec", { id: large, argv: [long] });
    expect(await codeOf(box.caller.ask("exec", { id, argv: ["y"], env: { A: "1", B: "2" } }))).toBe(
      "conflict",
    );
    expect(await codeOf(box.caller.ask("exec", { id: large, argv: [`${long}z`] }))).toBe("conflict");
    expect(await codeOf(box.caller.ask("exec", { id, argv, env: { B: "2", A: "1" } }))).toBe("answered");
    // What a request need not say may be said; what it says otherwise is something else.
    const said = { keep: "head", merge: false, grace_ms: 1000, env: { A: "1", B: "2" } };
    expect(await codeOf(box.caller.ask("exec", { id, argv, ...said }))).toBe("answered");
    expect(await codeOf(box.caller.ask("exec", { id, argv, ...said, merge: true }))).toBe("conflict");
    expect(await codeOf(box.caller.ask("exec", { id: large, argv: [long], credit_bytes: 9 }))).toBe(
      "answered",
    );
    expect(box.executor.commands).toHaveLength(2);
  });

  test("after commands of a client whose clock is an hour ahead new ones of others run; all were refused for that hour", async () => {
    box.executor.script = (command) => command.exit();
    const ahead = Array.from({ length: 40 }, () => {
      const time = (Date.now() + 3600_000).toString(16).padStart(12, "0");
      return `${time.slice(0, 8)}-${time.slice(8)}${newId().slice(13)}`;
    });
    for (const id of ahead) expect(await codeOf(box.caller.ask("exec", { id, argv }))).toBe("answered");
    expect(await codeOf(box.caller.ask("exec", { id: newId(), argv }))).toBe("answered");
    // Forgotten, and remembered as such.
    expect(await codeOf(box.caller.ask("exec", { id: ahead[30], argv }))).toBe("unknown_command unknown");
  });

  test("a forgotten id never runs again, though it is older than all that is known", async () => {
    box.executor.script = (command) => {
      command.write("output");
      command.exit();
    };
    const ids = Array.from({ length: 7 }, newId);
    for (const id of ids) await box.caller.ask("exec", { id, argv });
    const [first = "", , third = "", , fifth = ""] = ids;
    const ran = box.executor.commands.length;
    expect(await codeOf(box.caller.ask("exec", { id: first, argv }))).toBe("unknown_command unknown");
    expect(await codeOf(box.caller.ask("exec", { id: third, argv }))).toBe("output_gone yes");
    expect(await codeOf(box.caller.ask("exec", { id: fifth, argv }))).toBe("answered");
    expect(await codeOf(box.caller.ask("attach", { id: newId() }))).toBe("unknown_command unknown");
    // Who has all the output still learns how it ended.
    expect(await box.caller.ask("attach", { id: third, from_stdout: 6 })).toMatchObject({
      outcome: { code: 0 },
    });
    expect(box.executor.commands).toHaveLength(ran);
  });

  test("output beyond the memory for it pushes out the oldest, never the newest", async () => {
    box.executor.script = (command) => {
      command.write(Buffer.alloc(1.5 * MiB));
      command.exit();
    };
    const ids = [newId(), newId(), newId()];
    for (const id of ids) await box.caller.ask("exec", { id, argv });
    expect(await codeOf(box.caller.ask("exec", { id: ids[0], argv }))).toBe("output_gone yes");
    expect(await codeOf(box.caller.ask("exec", { id: ids[2], argv }))).toBe("answered");
  });

  test("more than may run at once is busy, and not started", async () => {
    for (let i = 0; i < 8; i++) box.caller.stream("exec", { argv });
    await box.begun(8);
    expect(await codeOf(box.caller.ask("exec", { argv }))).toBe("busy no");
  });
});

describe("to a running command", () => {
  test("signal, resize and cancel reach it, and say whether it still ran", async () => {
    const id = newId();
    const answer = box.caller.ask("exec", { id, argv });
    const command = await box.begun();
    expect(await box.caller.ask("signal", { id, signal: "SIGINT" })).toEqual({ running: true });
    expect(await codeOf(box.caller.ask("signal", { id, signal: "SIGNOPE" }))).toBe("invalid_request");
    expect(await box.caller.ask("resize", { id, rows: 5, cols: 6 })).toEqual({ running: true });
    expect(await box.caller.ask("cancel", { id })).toEqual({ running: true });
    expect([command.signals, command.sizes, command.canceled]).toEqual([[2], [[5, 6]], { as: undefined }]);
    command.sink.ended({ outcome: { type: "canceled", killed: 1, signal: "SIGTERM" }, durationMs: 1 });
    expect(await answer).toMatchObject({ outcome: { type: "canceled" } });
    expect(await box.caller.ask("cancel", { id })).toEqual({ running: false });
    expect(await codeOf(box.caller.ask("cancel", { id: newId() }))).toBe("unknown_command unknown");
  });

  test("an executor that never ends a command does not leave the caller without an answer", async () => {
    const answer = codeOf(box.caller.ask("exec", { argv, timeout_ms: 1, grace_ms: 0 }));
    expect(await answer).toBe("internal yes");
  }, 15_000);
});

describe("sh", () => {
  const sh = async (line: string, headers?: Record<string, string>) => {
    const options = { timeoutMs: 5_000, ...(headers === undefined ? {} : { headers }) };
    return box.user.request(box.sandbox, box.caller.subject("sh"), Buffer.from(line), options);
  };

  test("a raw line is answered with raw output, and the outcome in headers", async () => {
    box.executor.script = (command) => {
      command.write("raw {\n");
      command.exit(3);
    };
    const answer = await sh("{ echo hi; }", { "Timeout-Ms": "500" });
    expect(Buffer.from(answer.data).toString()).toBe("raw {\n");
    expect([answer.header("Sandmesh-Outcome"), answer.header("Sandmesh-Status")]).toEqual(["exited 3", "3"]);
    const { shell, merge, timeout_ms } = box.executor.last.request;
    expect({ shell, merge, timeout_ms }).toEqual({ shell: "{ echo hi; }", merge: true, timeout_ms: 500 });
  });

  test("what cannot be run says so in a header", async () => {
    expect((await sh("x", { "Timeout-Ms": "soon" })).header("Sandmesh-Error")).toBe("invalid_request");
    expect((await sh("a\0b")).header("Sandmesh-Error")).toBe("invalid_request");
    box.executor.script = () => {
      throw new Error("a bug");
    };
    expect((await sh("x")).header("Sandmesh-Error")).toBe("internal");
  });

  test("a long output is cut, and the cut stated", async () => {
    box.executor.script = (command) => {
      command.write(Buffer.alloc(300 * 1024));
      command.exit();
    };
    const answer = await sh("x");
    expect(answer.data.length).toBe(256 * 1024);
    expect(answer.header("Sandmesh-Dropped-Bytes")).toBe(String(44 * 1024));
  });
});

test("a body that no schema takes is a typed answer that names the field", async () => {
  const answer = await box.user.request(box.sandbox, box.caller.subject("exec"), Buffer.from('{"argv":7}'), {
    timeoutMs: 5_000,
  });
  expect(decode(answer.data)).toMatchObject({ error: { code: "invalid_request", field: "argv" } });
});
