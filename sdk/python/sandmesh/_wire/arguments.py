"""Checks requests that are made from a user's arguments: before anything is sent, and in the user's words."""

from __future__ import annotations

import inspect
from typing import Any

from ..errors import InvalidRequestError
from .schema import Bad, compiled

# What a user calls what the wire calls otherwise.
_ARGUMENTS = {
    "timeout_ms": "timeout",
    "grace_ms": "grace",
    "lease_ms": "lease",
    "max_life_ms": "max_life",
    "memory_bytes": "memory",
    "disk_bytes": "disk",
    "output_limit_bytes": "output_limit",
    "mtime_ms": "mtime",
    "hang_up_ms": "hang_up_after",
    "from_stdout": "stdout",
    "from_stderr": "stderr",
    "from": "source",
    "to": "target",
    "argv": "command",
    "shell": "command",
}


def check_arguments(message: str, value: Any, **names: str) -> dict[str, Any]:
    """As ``check``, of a request made from a user's arguments, which the error names as the user does. ``names``: wire
    names to names of arguments, where they are others than everywhere else."""
    try:
        checked: dict[str, Any] = compiled(message)(value)
        return checked
    except Bad as bad:
        # The parts of these the user gave each by itself.
        path = bad.path[1:] if bad.path[:1] in (["spec"], ["port"], ["pty"]) and len(bad.path) > 1 else bad.path
        path = [names.get(each) or _ARGUMENTS.get(each, each) if i == 0 else each for i, each in enumerate(path)]
        field = ".".join(path) or "arguments"
        raise InvalidRequestError(f"{field}: {bad.why}", field=field) from None


def check_callback(name: str, value: object) -> None:
    """Raises InvalidRequestError where ``value`` cannot be called, or what it does would have to be awaited."""
    if not callable(value) or inspect.iscoroutinefunction(value):
        raise InvalidRequestError(f"{name}: must be a function, which is called and not awaited", field=name)


def check_callbacks(**given: object) -> None:
    """As ``check_callback``, of those that may be left out."""
    for name, value in given.items():
        if value is not None:
            check_callback(name, value)
