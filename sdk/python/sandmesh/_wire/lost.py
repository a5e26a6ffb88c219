"""What becomes of a question whose answer did not come: the one place that says whether asking again may help."""

from __future__ import annotations

from ..errors import ConnectionError, DeadlineError, SandmeshError, UnreachableError


def may_be_lost(error: SandmeshError) -> bool:
    """Whether the question or its answer may only have been lost on the way."""
    if isinstance(error, ConnectionError):
        return error.reason not in ("closed", "server_gone")
    return isinstance(error, DeadlineError | UnreachableError)
