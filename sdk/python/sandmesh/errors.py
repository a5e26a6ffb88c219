"""Errors: one class per cause, one code per class, the same as in every other SDK (broker/contract/errors.ts)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from .results import ExecResult

Started = Literal["no", "yes", "unknown"]
"""Whether the command an error is about had been started: ``no`` is safe to send again, ``unknown`` is not."""


class SandmeshError(Exception):
    """The base of all errors that sandmesh raises, but for ``asyncio.CancelledError``."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False
    """Whether the same request, sent again later, can succeed without anyone changing anything."""

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        sandbox: str | None = None,
        reason: str | None = None,
        started: Started | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        """The message's field at fault, as a dotted path."""
        self.sandbox = sandbox
        self.reason = reason
        """A word from a closed list of the class."""
        self.started = started

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"code": self.code, "message": self.message, "retryable": self.retryable}
        for name in ("field", "sandbox", "reason", "started"):
            value = getattr(self, name)
            if value is not None:
                wire[name] = value
        return wire

    def with_started(self, started: Started) -> SandmeshError:
        """The same error, saying also whether the command had been started, where it does not say so itself."""
        return self if self.started is not None else self.saying(started)

    def saying(self, started: Started | None) -> SandmeshError:
        """The same error, saying that of whether the command had been started, whatever it says itself."""
        copy = type(self)(self.message, field=self.field, sandbox=self.sandbox, reason=self.reason, started=started)
        copy.__cause__ = self.__cause__ or self
        return copy

    def __reduce__(self) -> tuple[Any, ...]:
        # So that an error crosses a process boundary whole (multiprocessing, Ray).
        detail = {n: getattr(self, n) for n in ("field", "sandbox", "reason", "started")}
        return (_rebuild, (type(self), self.message, detail))


def _rebuild(cls: type[SandmeshError], message: str, detail: dict[str, Any]) -> SandmeshError:
    return cls(message, **detail)


class InvalidRequestError(SandmeshError):
    """The request is malformed: a wrong type, a value out of range, an unknown version. ``field`` names it."""

    code = "invalid_request"


class UnknownVerbError(SandmeshError):
    """The other side does not know this verb; it may be older."""

    code = "unknown_verb"


class TooLargeError(SandmeshError):
    """A message or file part is larger than the wire carries."""

    code = "too_large"


class PermissionDeniedError(SandmeshError):
    """The server or the pool does not let this user do that, or does not know the credential."""

    code = "permission_denied"


class ConnectionError(SandmeshError):
    """No NATS server answers at the address, or the connection closed for good."""

    code = "connection_failed"
    retryable = True


class UnreachableError(SandmeshError):
    """Nobody listens on the subject: the sandbox is gone or not there yet. The request was not delivered."""

    code = "unreachable"
    retryable = True


class DeadlineError(SandmeshError):
    """No answer came before the caller's own deadline."""

    code = "deadline_exceeded"


class CanceledError(SandmeshError):
    """The operation was ended by its caller (``stream.cancel``, leaving a stream early)."""

    code = "canceled"


class LeaseLostError(SandmeshError):
    """The lease, its generation or the daemon's incarnation is not the request's: the sandbox belongs to someone
    else by now, or was replaced."""

    code = "lease_lost"


class SandboxLostError(SandmeshError):
    """The infrastructure lost the sandbox: ``reason`` is ``daemon_died``, ``node_lost``, ``evicted``, ``oom``,
    ``deleted``, ``expired``, ``tampered``, ``disconnected`` or ``released``."""

    code = "sandbox_lost"


class UnknownCommandError(SandmeshError):
    """A command id that the daemon no longer, or never, knew: it may have run. ``started`` is ``unknown``."""

    code = "unknown_command"


class OutputGoneError(SandmeshError):
    """The command is known, but the bytes asked for are no longer held."""

    code = "output_gone"


class SessionClosedError(SandmeshError):
    """A named session is not open: reason ``closed`` or ``exited``."""

    code = "session_closed"


class IncompleteCommandError(SandmeshError):
    """A shell line that the shell could not parse to its end, such as an open quote. The session lives on."""

    code = "incomplete_command"


class FileError(SandmeshError):
    """A file operation failed; ``reason`` is the errno name, such as ``ENOENT``."""

    code = "file_error"


class BusyError(SandmeshError):
    """Too many commands, transfers or sessions at once in one sandbox."""

    code = "busy"
    retryable = True


class PoolUnavailableError(SandmeshError):
    """The pool is not there, or is starting."""

    code = "pool_unavailable"
    retryable = True


class DrainingError(SandmeshError):
    """The pool is being emptied and takes no new acquires."""

    code = "draining"
    retryable = True


class QueueFullError(SandmeshError):
    """The pool's queue for this tenant is full."""

    code = "queue_full"
    retryable = True


class QuotaExceededError(SandmeshError):
    """More than this tenant, or this provider, may ever have at once."""

    code = "quota_exceeded"


class AcquireTimeoutError(SandmeshError):
    """No sandbox was usable in time; ``reason`` is ``queued``, ``creating`` or ``booting``. What had been begun is
    reclaimed by the pool."""

    code = "acquire_timeout"
    retryable = True


class ImageError(SandmeshError):
    """The image does not exist, cannot be read or is not an image."""

    code = "image_error"


class UnsupportedError(SandmeshError):
    """The provider cannot do what the spec asks for; ``field`` names the part of the spec."""

    code = "unsupported"


class BootFailedError(SandmeshError):
    """The sandbox was created but never became ready; ``reason`` and the message say what was told about it."""

    code = "boot_failed"
    retryable = True


class ProviderError(SandmeshError):
    """The provider (the cluster's API, the kernel) refused or failed."""

    code = "provider_failed"
    retryable = True


class NotFoundError(SandmeshError):
    """No such sandbox, run, lease or transfer."""

    code = "not_found"


class ConflictError(SandmeshError):
    """An id was used before with other content."""

    code = "conflict"


class InternalError(SandmeshError):
    """A fault of sandmesh's own."""

    code = "internal"


class NoMeshError(SandmeshError):
    """Nothing says which mesh to connect to, or what says it cannot be read. The SDK's own."""

    code = "no_mesh"


class CommandFailedError(SandmeshError):
    """Raised by ``check=True`` and ``result.check()``: the command ran, and did not exit with 0. The SDK's own."""

    code = "command_failed"

    def __init__(self, message: str, *, result: ExecResult | None = None, **detail: Any) -> None:
        super().__init__(message, **detail)
        self.result = result
        """All of it, with its output."""

    def __reduce__(self) -> tuple[Any, ...]:
        detail = {n: getattr(self, n) for n in ("field", "sandbox", "reason", "started", "result")}
        return (_rebuild, (type(self), self.message, detail))


_OWN = (NoMeshError, CommandFailedError)
ERROR_CLASSES: dict[str, type[SandmeshError]] = {
    cls.code: cls for cls in SandmeshError.__subclasses__() if cls not in _OWN
}
"""All classes of the contract by code."""


def from_wire(wire: dict[str, Any]) -> SandmeshError:
    """Rebuilds an error from an answer. A code of a newer version becomes InternalError with the code in its text."""
    code, message = str(wire.get("code")), str(wire.get("message", wire.get("code")))
    detail = {n: v for n in ("field", "sandbox", "reason") if isinstance(v := wire.get(n), str)}
    started = wire.get("started")
    known = ERROR_CLASSES.get(code)
    return (known or InternalError)(
        message if known else f"{code}: {message}",
        started=started if started in ("no", "yes", "unknown") else None,
        **detail,
    )
