// The TypeScript SDK's public face. Works in Node >= 20 and Bun.
//
//   await using mesh = await connect();                        // or: const mesh = await connect(); … mesh.close()
//   await using box = await mesh.acquire({ image: "host", cpu: 1, memory: "512MiB", timeout: "2m" });
//   const result = await box.exec("pytest -q", { cwd: "/repo", timeout: "10m" });
//   result.outcome · result.exitCode · result.ok · result.stdout.text · result.stdout.bytes · result.orThrow()
//
// Durations are numbers of milliseconds or text with a unit ("500ms", "30s", "5m", "1h"); sizes are numbers of bytes
// or text ("512MiB", "2g"). What the pool and `info`, `stat` answer has the names of the wire (`age_ms`, `mtime_ms`).
//
// connect({ url?, credentials?, tenant?, user?, run?, lease?, connectTimeout?, handleSignals?, signal? }) → Mesh
// Mesh     acquire(spec & { run?, timeout?, lease?, maxLife?, id?, signal? }) → Sandbox · acquireMany(n, …) ·
//          run(id?, { lease? }) → Run · sandbox(id) → Sandbox · list({ run? }) · status() · renew(run, lease?) ·
//          release("sb-…" | lease | run | { sandbox } | { lease } | { run }) → number ended ·
//          events({ run?, sandbox?, what?, signal? }) → MeshEvents, "missed" among them · drain({ on?, releaseAll? }) · close()
// Run      id · acquire · acquireMany · list · renew · events · release() → number · close()
// Sandbox  id · grant · run · lost · onLost(tell) · exec(text | argv, options) → ExecResult ·
//          stream(…) → CommandStream · start(…) → Command · command(id) · commands() · shell(options) → Session ·
//          terminal({ rows, cols, command? }) → Terminal · files · ping() → ms · info() · release() = close() ·
//          forward(port, …) → Forward · expose(localPort, …) → Forward ·
//          detach() (leave it alive: neither renew nor release it any more)
//          All that may wait takes `signal` among its options: it ends the waiting at once, with CanceledError.
// options  cwd env envReplace user umask nice rlimits stdin timeout grace outputLimit keep merge wait session signal
//          id check
// CommandStream  for await (const chunk of s) chunk.stream, .data, .text, .offset · end → CommandEnd · drain() · close()
// Command  id · pid · attach({ from?, signal? }) → CommandStream · wait() → ExecResult · signal(name) · cancel() ·
//          resize(rows, cols) · stdin.write(data) · stdin.close()
// Session  name · shell · exec · stream · close
// Terminal output (CommandStream) · write(data) · resize(rows, cols) · end → CommandEnd · close() · command
// files    read readText readStream write stat exists list remove mkdir rename pack unpack upload download sha256
//          chmod chown glob search watch

export * from "../../broker/contract/errors.ts";
export { newUuidV7 } from "../../broker/contract/ids.ts";
export type { PoolEvent } from "../../broker/contract/messages/control.ts";
export type { FileStat } from "../../broker/contract/messages/files.ts";
export type { InfoAnswer } from "../../broker/contract/messages/info.ts";
export type { Grant, SandboxView, State, Timeline } from "../../broker/contract/messages/pool.ts";
export type { HashAnswer, SearchAnswer } from "../../broker/contract/messages/trees.ts";
export { assertNever, describeOutcome, type Outcome } from "../../broker/contract/outcome.ts";
export type { AcquireManyOptions, AcquireOptions } from "./acquire-options.ts";
export { Chunk } from "./command/chunk.ts";
export { type AttachOptions, Command, type StartOptions } from "./command/command.ts";
export type { ExecOptions } from "./command/exec.ts";
export type { CommandOptions, Input } from "./command/request.ts";
export { CommandEnd, ExecResult, Output } from "./command/result.ts";
export { Session, type ShellOptions } from "./command/session.ts";
export { StdinWriter } from "./command/stdin.ts";
export { CommandStream } from "./command/stream.ts";
export { Terminal, type TerminalOptions } from "./command/terminal.ts";
export { type ConnectOptions, connect } from "./connect.ts";
export { CommandFailedError, NoMeshError } from "./errors.ts";
export type { EventFilter, MeshEvent, MissedEvents } from "./events.ts";
export { type Abortable, type Content, Files, type SearchOptions, type WriteOptions } from "./files/files.ts";
export type { ReadRange } from "./files/read.ts";
export type { CopyOptions } from "./files/trees.ts";
export type { FileChange } from "./files/watch.ts";
export { Mesh } from "./mesh.ts";
export type { ExposeOptions, Forward, ForwardOptions } from "./ports/ports.ts";
export type { Releasable } from "./releases.ts";
export { Run } from "./run.ts";
export { Sandbox } from "./sandbox.ts";
export { MeshFile, meshFilePath } from "./settings.ts";
export type { SpecOptions } from "./spec.ts";
export type { Duration, Size } from "./units.ts";
