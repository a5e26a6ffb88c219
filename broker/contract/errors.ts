// Errors: one class per cause, one code per class, the same in every SDK. No raw NATS, provider or system error
// reaches a user.

/** Whether the command that an error is about had been started: `no` is safe to send again, `unknown` is not. */
export type Started = "no" | "yes" | "unknown";

export interface ErrorDetail {
  /** The message's field at fault, as a dotted path. */
  field?: string;
  /** The sandbox it is about. */
  sandbox?: string;
  /** A word from a closed list of the class (see each class). */
  reason?: string;
  /** For commands; and of an `unpack` that failed `no`, where nothing was written. */
  started?: Started;
  cause?: unknown;
}

/** An error as it stands in an answer, under the key `error`. */
export interface WireError {
  code: string;
  message: string;
  retryable: boolean;
  field?: string;
  sandbox?: string;
  reason?: string;
  started?: Started;
}

/** Characters of a message: a caller's own text, such as a path, stands in many, and may be of megabytes. */
const MAX_MESSAGE = 4000;
/** Of a longer one, the last so many: the reason comes behind what it is about. */
const LAST = 1000;

function shortened(message: string): string {
  if (message.length <= MAX_MESSAGE) return message;
  const left = message.length - MAX_MESSAGE;
  // Without the half of a surrogate pair that was cut.
  const first = message.slice(0, MAX_MESSAGE - LAST).replace(/[\uD800-\uDBFF]$/, "");
  const last = message.slice(-LAST).replace(/^[\uDC00-\uDFFF]/, "");
  return `${first} … (${left} characters) … ${last}`;
}

/** The base of all errors that sandmesh throws: `catch (e) { if (e instanceof SandmeshError) … }`. */
export abstract class SandmeshError extends Error {
  abstract readonly code: string;
  /** Whether the same request, sent again later, can succeed without anyone changing anything. */
  abstract readonly retryable: boolean;
  // Declared alone: what is not known is no property, which an uncaught error's print would show.
  declare readonly field: string | undefined;
  declare readonly sandbox: string | undefined;
  declare readonly reason: string | undefined;
  declare readonly started: Started | undefined;

  constructor(message: string, detail: ErrorDetail = {}) {
    super(shortened(message), detail.cause === undefined ? undefined : { cause: detail.cause });
    // A bundler that puts two scopes into one file tells classes of one name apart by a number.
    this.name = new.target.name.replace(/\d+$/, "");
    if (detail.field !== undefined) this.field = detail.field;
    if (detail.sandbox !== undefined) this.sandbox = detail.sandbox;
    if (detail.reason !== undefined) this.reason = detail.reason;
    if (detail.started !== undefined) this.started = detail.started;
  }

  /** This error as an answer carries it. The cause and the stack stay here. */
  toWire(): WireError {
    const wire: WireError = { code: this.code, message: this.message, retryable: this.retryable };
    if (this.field !== undefined) wire.field = this.field;
    if (this.sandbox !== undefined) wire.sandbox = this.sandbox;
    if (this.reason !== undefined) wire.reason = this.reason;
    if (this.started !== undefined) wire.started = this.started;
    return wire;
  }
}

/** The request is malformed: a wrong type, a value out of range, an unknown version. `field` names it. */
export class InvalidRequestError extends SandmeshError {
  readonly code = "invalid_request";
  readonly retryable = false;
}
/** The other side does not know this verb; it may be older. */
export class UnknownVerbError extends SandmeshError {
  readonly code = "unknown_verb";
  readonly retryable = false;
}
/** A message or file part is larger than the wire carries. */
export class TooLargeError extends SandmeshError {
  readonly code = "too_large";
  readonly retryable = false;
}
/** The server or the pool does not let this user do that, or does not know the credential. */
export class PermissionDeniedError extends SandmeshError {
  readonly code = "permission_denied";
  readonly retryable = false;
}
/** No NATS server answers at the address, or the connection closed for good (reason `closed`), or the server has been
 * away for a minute (`server_gone`), and whoever asks need not wait for it. */
export class ConnectionError extends SandmeshError {
  readonly code = "connection_failed";
  readonly retryable = true;
}
/** Nobody listens on the subject: the sandbox is gone or not there yet. The request was not delivered. */
export class UnreachableError extends SandmeshError {
  readonly code = "unreachable";
  readonly retryable = true;
}
/** No answer came before the caller's own deadline. */
export class DeadlineError extends SandmeshError {
  readonly code = "deadline_exceeded";
  readonly retryable = false;
}
/** The caller's AbortSignal, or its cancel, ended the operation. */
export class CanceledError extends SandmeshError {
  readonly code = "canceled";
  readonly retryable = false;
}
/** The lease, its generation or the daemon's incarnation is not the one of the request: the sandbox belongs to
 * someone else by now, or was replaced. */
export class LeaseLostError extends SandmeshError {
  readonly code = "lease_lost";
  readonly retryable = false;
}
/** The infrastructure lost the sandbox: reason `daemon_died`, `node_lost`, `evicted`, `oom`, `deleted`, `expired`,
 * `tampered`, `disconnected` or `released`. */
export class SandboxLostError extends SandmeshError {
  readonly code = "sandbox_lost";
  readonly retryable = false;
}
/** A command id that the daemon no longer, or never, knew: it may have run. `started` is `unknown`. */
export class UnknownCommandError extends SandmeshError {
  readonly code = "unknown_command";
  readonly retryable = false;
}
/** The command is known, but the bytes asked for are no longer held (bounded retention). */
export class OutputGoneError extends SandmeshError {
  readonly code = "output_gone";
  readonly retryable = false;
}
/** A named session is not open (never opened, exited, or killed): reason `closed` or `exited`. Or what was written to is a
 * command's stdin that was closed before, perhaps by another writer: `closed`. */
export class SessionClosedError extends SandmeshError {
  readonly code = "session_closed";
  readonly retryable = false;
}
/** A shell line that the shell could not parse to its end, such as an open quote. The session lives on. */
export class IncompleteCommandError extends SandmeshError {
  readonly code = "incomplete_command";
  readonly retryable = false;
}
/** A file operation failed; `reason` is the errno name, such as `ENOENT`, `EACCES`, `ENOSPC`. */
export class FileError extends SandmeshError {
  readonly code = "file_error";
  readonly retryable = false;
}
/** Too many commands, transfers or sessions at once in one sandbox. */
export class BusyError extends SandmeshError {
  readonly code = "busy";
  readonly retryable = true;
}
/** The pool is not there, or is starting. */
export class PoolUnavailableError extends SandmeshError {
  readonly code = "pool_unavailable";
  readonly retryable = true;
}
/** The pool is being emptied and takes no new acquires. */
export class DrainingError extends SandmeshError {
  readonly code = "draining";
  readonly retryable = true;
}
/** The pool's queue for this tenant is full. */
export class QueueFullError extends SandmeshError {
  readonly code = "queue_full";
  readonly retryable = true;
}
/** More than this tenant, or this provider, may ever have at once. */
export class QuotaExceededError extends SandmeshError {
  readonly code = "quota_exceeded";
  readonly retryable = false;
}
/** No sandbox was usable before the acquire's own deadline; reason `queued`, `creating` or `booting` says where
 * it stood. What had been begun is reclaimed by the pool. */
export class AcquireTimeoutError extends SandmeshError {
  readonly code = "acquire_timeout";
  readonly retryable = true;
}
/** The image does not exist, cannot be read or is not an image. */
export class ImageError extends SandmeshError {
  readonly code = "image_error";
  readonly retryable = false;
}
/** The provider cannot do what the spec asks for; `field` names the part of the spec. */
export class UnsupportedError extends SandmeshError {
  readonly code = "unsupported";
  readonly retryable = false;
}
/** The sandbox was created but never became ready; `reason` is `boot_timeout`, `exited`, `oom`, `unschedulable`,
 * `tampered` or a word of the provider's, and the message carries what it said. */
export class BootFailedError extends SandmeshError {
  readonly code = "boot_failed";
  readonly retryable = true;
}
/** The provider (the cluster's API, the kernel) refused or failed. */
export class ProviderError extends SandmeshError {
  readonly code = "provider_failed";
  readonly retryable = true;
}
/** No such sandbox, run, lease or transfer. */
export class NotFoundError extends SandmeshError {
  readonly code = "not_found";
  readonly retryable = false;
}
/** An id was used before with other content. */
export class ConflictError extends SandmeshError {
  readonly code = "conflict";
  readonly retryable = false;
}
/** A fault of sandmesh's own; its log has the details. */
export class InternalError extends SandmeshError {
  readonly code = "internal";
  readonly retryable = false;
}

type ErrorClass = new (message: string, detail?: ErrorDetail) => SandmeshError;

/** All classes by code: the one table that SDKs in other languages are checked against. */
export const ERROR_CLASSES = {
  invalid_request: InvalidRequestError,
  unknown_verb: UnknownVerbError,
  too_large: TooLargeError,
  permission_denied: PermissionDeniedError,
  connection_failed: ConnectionError,
  unreachable: UnreachableError,
  deadline_exceeded: DeadlineError,
  canceled: CanceledError,
  lease_lost: LeaseLostError,
  sandbox_lost: SandboxLostError,
  unknown_command: UnknownCommandError,
  output_gone: OutputGoneError,
  session_closed: SessionClosedError,
  incomplete_command: IncompleteCommandError,
  file_error: FileError,
  busy: BusyError,
  pool_unavailable: PoolUnavailableError,
  draining: DrainingError,
  queue_full: QueueFullError,
  quota_exceeded: QuotaExceededError,
  acquire_timeout: AcquireTimeoutError,
  image_error: ImageError,
  unsupported: UnsupportedError,
  boot_failed: BootFailedError,
  provider_failed: ProviderError,
  not_found: NotFoundError,
  conflict: ConflictError,
  internal: InternalError,
} as const satisfies Record<string, ErrorClass>;

export type ErrorCode = keyof typeof ERROR_CLASSES;

/** Rebuilds an error from an answer. A code of a newer version becomes InternalError with the code in its text. */
export function fromWire(wire: WireError): SandmeshError {
  const known = Object.hasOwn(ERROR_CLASSES, wire.code);
  const Class: ErrorClass = known ? ERROR_CLASSES[wire.code as ErrorCode] : InternalError;
  const { message, code: _code, retryable: _retryable, ...detail } = wire;
  return new Class(known ? message : `${wire.code}: ${message}`, detail);
}

/** The name of a system error, such as `ENOENT`; undefined of anything else that was thrown. */
export function errnoOf(thrown: unknown): string | undefined {
  if (!(thrown instanceof Error) || !("code" in thrown)) return undefined;
  return typeof thrown.code === "string" ? thrown.code : undefined;
}

/** The one normalizer at each edge: whatever was thrown becomes an error that may cross the wire. */
export function toSandmeshError(thrown: unknown): SandmeshError {
  if (thrown instanceof SandmeshError) return thrown;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return new InternalError(message, { cause: thrown });
}
