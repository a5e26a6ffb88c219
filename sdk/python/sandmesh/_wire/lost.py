"""What becomes of a question whose answer did not come, or refuses it: the one place that says whether asking again may
help, and whether the question may have started something."""

from __future__ import annotations

from ..errors import (
    ConflictError,
    ConnectionError,
    DeadlineError,
    InvalidRequestError,
    LeaseLostError,
    NotFoundError,
    PermissionDeniedError,
    SandmeshError,
    TooLargeError,
    UnknownVerbError,
    UnreachableError,
    UnsupportedError,
)

_REFUSALS = (
    InvalidRequestError,
    UnknownVerbError,
    TooLargeError,
    ConflictError,
    UnsupportedError,
    NotFoundError,
    LeaseLostError,
)


def may_be_lost(error: SandmeshError) -> bool:
    """Whether the question or its answer may only have been lost on the way."""
    if isinstance(error, ConnectionError):
        return error.reason not in ("closed", "server_gone")
    return isinstance(error, DeadlineError | UnreachableError)


def started_nothing(error: SandmeshError) -> bool:
    """Whether the question that was answered so has started nothing; what another one before it did is not known by
    that."""
    # A credential that is refused, or may not hear the answer, says nothing of what was asked before.
    if isinstance(error, PermissionDeniedError):
        return error.reason not in ("credential", "subscribe")
    return isinstance(error, _REFUSALS)
