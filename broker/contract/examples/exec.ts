// Examples of the messages about commands and sessions.
import { badFence, type Examples, FENCE, ID, LIFE, RAW } from "./example.ts";

const argv = ["true"];
const total = { total_bytes: 7, dropped_bytes: 0 };
const end = (outcome: Record<string, unknown>, rest: Record<string, unknown> = {}) => ({
  type: "end",
  id: ID,
  incarnation: LIFE,
  outcome,
  totals: { stdout: total, stderr: { total_bytes: 0, dropped_bytes: 0 } },
  duration_ms: 1.25,
  ...rest,
});

export const EXEC_EXAMPLES: Record<string, Examples> = {
  "sandbox.exec.request": {
    good: {
      "argv alone": { argv },
      "a shell line": { version: 1, shell: "pytest -q && echo 'ü'" },
      "an empty shell line": { shell: "" },
      "with its fence": { version: 1, ...FENCE, id: ID, argv: ["sh", "-c", "exit 3"] },
      "every field": {
        version: 1,
        ...FENCE,
        id: ID,
        argv: ["cat", "-", ""],
        cwd: "/srv/app",
        env: { PATH: "/bin", EMPTY: "", GONE: null },
        env_replace: true,
        user: "nobody:1000",
        umask: 0o22,
        nice: -5,
        rlimits: { nofile: 1024, core: 0 },
        stdin: RAW,
        stdin_open: true,
        timeout_ms: 60_000,
        grace_ms: 0,
        output_limit_bytes: 5_000_000_000,
        keep: "tail",
        merge: true,
        wait: "all",
        pty: { rows: 24, cols: 80 },
        detach: true,
        credit_bytes: 1_048_576,
        reader: "abc.1",
      },
      "a connection": { id: ID, port: { type: "connect", port: 8080 }, stdin_open: true },
      "a listener": { id: ID, port: { type: "listen", host: "0.0.0.0", port: 0 }, detach: true },
      "a connection of a listener's": { port: { type: "accept", listener: ID, connection: 1 } },
      "in a session": { shell: "cd /tmp", session: "s-1" },
      "empty stdin": { argv, stdin: new Uint8Array(0) },
      "unknown fields are ignored": { argv, from_the_future: { a: [1, 2] } },
    },
    bad: {
      ...badFence({ argv }),
      "neither argv nor shell": [{}, "body"],
      "both argv and shell": [{ argv, shell: "true" }, "body"],
      "a session with argv": [{ argv, session: "s-1" }, "body"],
      "both argv and port": [{ argv, port: { type: "connect", port: 1 } }, "body"],
      "port 0": [{ port: { type: "connect", port: 0 } }, "port.port"],
      "port 65536": [{ port: { type: "listen", port: 65_536 } }, "port.port"],
      "an empty argv": [{ argv: [] }, "argv"],
      "argv as text": [{ argv: "true" }, "argv"],
      "a number in argv": [{ argv: ["sleep", 1] }, "argv.1"],
      "NUL in an argument": [{ argv: ["echo", "a\0b"] }, "argv.1"],
      "NUL in the shell line": [{ shell: "echo \0" }, "shell"],
      "a UUIDv4 as id": [{ argv, id: "7b1e0192-0c6a-4c3d-8e4f-5a6b7c8d9e0f" }, "id"],
      "an upper-case id": [{ argv, id: ID.toUpperCase() }, "id"],
      "an id with a line end": [{ argv, id: `${ID}\n` }, "id"],
      "a session with a dot": [{ shell: "true", session: "a.b" }, "session"],
      "an empty cwd": [{ argv, cwd: "" }, "cwd"],
      "a cwd beyond PATH_MAX": [{ argv, cwd: "x".repeat(4097) }, "cwd"],
      "a number in env": [{ argv, env: { A: 1 } }, "env.A"],
      "a variable's name with =": [{ argv, env: { "A=B": "1" } }, "env.A=B"],
      "env as a list": [{ argv, env: ["A=1"] }, "env"],
      "an unknown limit": [{ argv, rlimits: { pigs: 1 } }, "rlimits.pigs"],
      "umask above 0777": [{ argv, umask: 0o1000 }, "umask"],
      "nice below -20": [{ argv, nice: -21 }, "nice"],
      "a timeout of 0": [{ argv, timeout_ms: 0 }, "timeout_ms"],
      "a timeout that is no number": [{ argv, timeout_ms: Number.NaN }, "timeout_ms"],
      "an endless timeout": [{ argv, timeout_ms: Number.POSITIVE_INFINITY }, "timeout_ms"],
      "a timeout beyond 30 days": [{ argv, timeout_ms: 2_592_000_001 }, "timeout_ms"],
      "a timeout of true": [{ argv, timeout_ms: true }, "timeout_ms"],
      "a grace beyond a minute": [{ argv, grace_ms: 60_001 }, "grace_ms"],
      "an output limit beyond 64 GiB": [{ argv, output_limit_bytes: 68_719_476_737 }, "output_limit_bytes"],
      "a strange keep": [{ argv, keep: "middle" }, "keep"],
      "a terminal without columns": [{ argv, pty: { rows: 24 } }, "pty.cols"],
      "a terminal of no rows": [{ argv, pty: { rows: 0, cols: 80 } }, "pty.rows"],
      "stdin as a number": [{ argv, stdin: 5 }, "stdin"],
      "stdin as text that is no base64": [{ argv, stdin: "not base64!" }, "stdin"],
      "credit beyond 16 MiB": [{ argv, credit_bytes: 16_777_217 }, "credit_bytes"],
    },
  },
  "sandbox.attach.request": {
    good: {
      "from the start": { id: ID },
      "from offsets": {
        version: 1,
        ...FENCE,
        id: ID,
        from_stdout: 4096,
        from_stderr: 1,
        credit_bytes: 65_536,
        reader: "abc.1",
      },
    },
    bad: {
      ...badFence({ id: ID }),
      "no id": [{}, "id"],
      "before the start": [{ id: ID, from_stdout: -1 }, "from_stdout"],
      "a reader of a number": [{ id: ID, reader: 1 }, "reader"],
    },
  },
  "sandbox.credit.request": {
    good: {
      "a step": { version: 1, token: "abc.1", stream: "stdout", received: 1, until: 1_048_577 },
      "a reader that is gone": { token: "abc.1", stream: "stdout", received: 1, until: 1, left: true },
    },
    bad: {
      "gone as text": [{ token: "t", stream: "stdout", received: 1, until: 1, left: "yes" }, "left"],
      "no token": [{ stream: "stdout", received: 0, until: 1 }, "token"],
      "a token too long": [{ token: "t".repeat(129), stream: "stdout", received: 0, until: 1 }, "token"],
      "a stream that is none": [{ token: "t", stream: "stdin", received: 0, until: 1 }, "stream"],
      "2 GiB as text": [{ token: "t", stream: "data", received: 0, until: "2147483648" }, "until"],
    },
  },
  "sandbox.stdin.request": {
    good: {
      bytes: { ...FENCE, id: ID, offset: 0, data: RAW },
      "the end": { id: ID, offset: 7, eof: true },
      "one of several writers": { ...FENCE, id: ID, writer: "w1", offset: 0, data: RAW },
    },
    bad: {
      ...badFence({ id: ID, offset: 0 }),
      "no offset": [{ id: ID, data: RAW }, "offset"],
      "a writer of a number": [{ id: ID, writer: 1, offset: 0 }, "writer"],
      "a writer without a name": [{ id: ID, writer: "", offset: 0 }, "writer"],
      "a writer too long": [{ id: ID, writer: "w".repeat(65), offset: 0 }, "writer"],
    },
  },
  "sandbox.stdin.answer": {
    good: { some: { received: 7 }, "to a writer": { received: 7, writer: "w1" } },
    bad: { nothing: [{}, "received"], "a writer of a number": [{ received: 7, writer: 1 }, "writer"] },
  },
  "sandbox.signal.request": {
    good: {
      interrupt: { id: ID, signal: "SIGINT" },
      "real-time": { ...FENCE, id: ID, signal: "SIGRTMIN+3" },
    },
    bad: {
      ...badFence({ id: ID, signal: "SIGINT" }),
      "a number": [{ id: ID, signal: 9 }, "signal"],
      "without SIG": [{ id: ID, signal: "KILL" }, "signal"],
      "in lower case": [{ id: ID, signal: "sigint" }, "signal"],
      "with a line end": [{ id: ID, signal: "SIGINT\n" }, "signal"],
    },
  },
  "sandbox.signal.answer": {
    good: { ran: { running: true } },
    bad: { text: [{ running: "yes" }, "running"] },
  },
  "sandbox.cancel.request": {
    good: { one: { ...FENCE, id: ID } },
    bad: { ...badFence({ id: ID }), none: [{}, "id"] },
  },
  "sandbox.cancel.answer": { good: { ended: { running: false } }, bad: { nothing: [{}, "running"] } },
  "sandbox.resize.request": {
    good: { larger: { id: ID, rows: 50, cols: 200 } },
    bad: { ...badFence({ id: ID, rows: 1, cols: 1 }), "no columns": [{ id: ID, rows: 1, cols: 0 }, "cols"] },
  },
  "sandbox.resize.answer": { good: { ran: { running: true } }, bad: { nothing: [{}, "running"] } },
  "sandbox.commands.request": { good: { plain: {}, fenced: { version: 1, ...FENCE } }, bad: badFence({}) },
  "sandbox.commands.answer": {
    good: {
      none: { commands: [] },
      two: {
        commands: [
          {
            id: ID,
            command: "sleep 60",
            pid: 42,
            running: true,
            age_ms: 1200,
            readable: { stdout: 4096, stderr: 0 },
            background: [43, 44],
          },
          {
            id: ID,
            command: "true",
            running: false,
            outcome: { type: "exited", code: 0 },
            age_ms: 0,
            session: "s",
          },
        ],
      },
    },
    bad: {
      "a command without an id": [
        { commands: [{ command: "x", running: true, age_ms: 0 }] },
        "commands.0.id",
      ],
    },
  },
  "frame.chunk": {
    good: {
      bytes: { type: "chunk", id: ID, stream: "stdout", offset: 0, data: RAW },
      "beyond 4 GiB": {
        type: "chunk",
        id: ID,
        stream: "data",
        offset: 5_000_000_000,
        data: new Uint8Array(0),
      },
      "a stream's end": {
        type: "chunk",
        id: ID,
        stream: "stdout",
        offset: 7,
        data: new Uint8Array(0),
        eof: true,
      },
    },
    bad: {
      "an end that is a number": [
        { type: "chunk", id: ID, stream: "stdout", offset: 0, data: RAW, eof: 1 },
        "eof",
      ],
      "no data": [{ type: "chunk", id: ID, stream: "stdout", offset: 0 }, "data"],
      "an offset below 0": [{ type: "chunk", id: ID, stream: "stdout", offset: -1, data: RAW }, "offset"],
      "another type": [{ type: "lump", id: ID, stream: "stdout", offset: 0, data: RAW }, "type"],
    },
  },
  "frame.started": {
    good: { one: { type: "started", id: ID, incarnation: LIFE, pid: 2 } },
    bad: { "no pid": [{ type: "started", id: ID, incarnation: LIFE }, "pid"] },
  },
  "frame.end": {
    good: {
      exited: end(
        { type: "exited", code: 0 },
        { stdout: RAW, stderr: new Uint8Array(0), pid: 9, background: 1 },
      ),
      "exited 137 is not SIGKILL": end({ type: "exited", code: 137 }),
      signaled: end({ type: "signaled", signal: "SIGKILL", core_dumped: false }),
      "timed out": end({ type: "timed_out", after_ms: 2000, killed: 3, signal: "SIGTERM" }),
      canceled: end({ type: "canceled", killed: 1, signal: "SIGKILL" }),
      "out of memory": end(
        { type: "oom_killed", limit_bytes: 67_108_864 },
        { cpu_ms: 12.5, max_rss_bytes: 1024 },
      ),
      "output limit": end(
        { type: "output_limit", stream: "stdout", limit_bytes: 1024 },
        { totals: { stdout: { total_bytes: 2000, dropped_bytes: 976, dropped_from: 1024 }, stderr: total } },
      ),
      "not started": end({ type: "not_started", reason: "no_such_program", message: "no such program: foo" }),
    },
    bad: {
      "exit code 256": [end({ type: "exited", code: 256 }), "outcome.code"],
      "exit code -1": [end({ type: "exited", code: -1 }), "outcome.code"],
      "an unknown outcome": [end({ type: "vanished" }), "outcome.type"],
      "no outcome": [{ ...end({}), outcome: undefined }, "outcome"],
      "no totals": [{ ...end({ type: "exited", code: 0 }), totals: undefined }, "totals"],
      "an unknown reason": [end({ type: "not_started", reason: "laziness", message: "" }), "outcome.reason"],
    },
  },
  "sandbox.session_open.request": {
    good: {
      plain: { session: "main" },
      full: { ...FENCE, session: "s-2", shell: "bash", cwd: "/", env: { A: "1" } },
    },
    bad: { ...badFence({ session: "a" }), "a star": [{ session: "*" }, "session"], none: [{}, "session"] },
  },
  "sandbox.session_open.answer": {
    good: { one: { session: "main", shell: "/bin/bash", pid: 5, busy: false } },
    bad: { "no pid": [{ session: "main", shell: "/bin/bash", busy: false }, "pid"] },
  },
  "sandbox.session_close.request": {
    good: { one: { ...FENCE, session: "main" } },
    bad: { ...badFence({ session: "a" }), "a space": [{ session: "a b" }, "session"] },
  },
  "sandbox.session_close.answer": { good: { one: { closed: true } }, bad: { nothing: [{}, "closed"] } },
  "sandbox.sessions.request": { good: { plain: {} }, bad: badFence({}) },
  "sandbox.sessions.answer": {
    good: { one: { sessions: [{ session: "main", shell: "/bin/sh", pid: 5, busy: true }] } },
    bad: { "not a list": [{ sessions: {} }, "sessions"] },
  },
};
