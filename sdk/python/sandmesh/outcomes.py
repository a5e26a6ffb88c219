"""Outcomes: what a command did. Loss of the infrastructure is never an outcome; that is an error."""

from __future__ import annotations

import signal
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Union


def _ended(processes: int) -> str:
    return "1 process ended" if processes == 1 else f"{processes} processes ended"


@dataclass(frozen=True)
class Exited:
    """Ended by itself, with that code (0 to 255)."""

    type: ClassVar[str] = "exited"
    code: int

    def __str__(self) -> str:
        return f"exited {self.code}"


@dataclass(frozen=True)
class Signaled:
    """Ended by a signal that sandmesh did not send. Exit code 137 is ``Exited``, SIGKILL is this."""

    type: ClassVar[str] = "signaled"
    signal: str
    core_dumped: bool

    def __str__(self) -> str:
        return f"signaled {self.signal}{' (core dumped)' if self.core_dumped else ''}"


@dataclass(frozen=True)
class TimedOut:
    """Ended by sandmesh at its time limit, with its whole process tree."""

    type: ClassVar[str] = "timed_out"
    after_ms: int
    killed: int
    signal: str

    def __str__(self) -> str:
        return f"timed out after {self.after_ms} ms ({_ended(self.killed)})"


@dataclass(frozen=True)
class Canceled:
    """Ended by sandmesh because someone asked for it, with its whole process tree."""

    type: ClassVar[str] = "canceled"
    killed: int
    signal: str

    def __str__(self) -> str:
        return f"canceled ({_ended(self.killed)})"


@dataclass(frozen=True)
class OomKilled:
    """Ended by the kernel, for the sandbox's memory limit."""

    type: ClassVar[str] = "oom_killed"
    limit_bytes: int | None = None

    def __str__(self) -> str:
        return "killed: out of memory"


@dataclass(frozen=True)
class OutputLimit:
    """Ended since it wrote more than ``keep="fail"`` allows."""

    type: ClassVar[str] = "output_limit"
    stream: Literal["stdout", "stderr"]
    limit_bytes: int

    def __str__(self) -> str:
        return f"ended: {self.stream} passed {self.limit_bytes} bytes"


@dataclass(frozen=True)
class NotStarted:
    """The program could not be run at all; sent again unchanged it fails again."""

    type: ClassVar[str] = "not_started"
    reason: str
    message: str

    def __str__(self) -> str:
        return f"not started: {self.message}"


Outcome = Union[Exited, Signaled, TimedOut, Canceled, OomKilled, OutputLimit, NotStarted]  # noqa: UP007
_CLASSES: dict[str, type[Any]] = {
    cls.type: cls for cls in (Exited, Signaled, TimedOut, Canceled, OomKilled, OutputLimit, NotStarted)
}


def outcome_from_wire(wire: dict[str, Any]) -> Outcome:
    """From a checked message."""
    cls = _CLASSES[wire["type"]]
    outcome: Outcome = cls(**{f.name: wire[f.name] for f in fields(cls) if f.name in wire})
    return outcome


def shell_status(outcome: Outcome) -> int:
    """The exit status that a shell would report; programs should look at the outcome instead."""
    if isinstance(outcome, Exited):
        return outcome.code
    if isinstance(outcome, Signaled):
        return 128 + _signal_number(outcome.signal)
    if isinstance(outcome, TimedOut):
        return 124
    if isinstance(outcome, Canceled):
        return 130
    if isinstance(outcome, NotStarted):
        return 127 if outcome.reason == "no_such_program" else 126
    return 137


def _signal_number(name: str) -> int:
    base, plus, more = name.partition("+")
    try:
        return int(signal.Signals[base]) + (int(more) if plus else 0)
    except (KeyError, ValueError):
        return 0
