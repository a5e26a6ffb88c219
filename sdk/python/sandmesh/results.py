"""What a command did and wrote."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from .errors import CommandFailedError, Started
from .outcomes import Exited, NotStarted, Outcome, outcome_from_wire

_Bytes: TypeAlias = bytes


class Output:
    """One output stream of a command: always the exact bytes, and text made from them when asked for."""

    __slots__ = ("_parts", "_text", "dropped_bytes", "dropped_from", "total_bytes")

    def __init__(self, parts: list[bytes], totals: dict[str, Any]) -> None:
        self._parts = parts
        self._text: str | None = None
        self.total_bytes: int = totals["total_bytes"]
        """Bytes that the command wrote."""
        self.dropped_bytes: int = totals["dropped_bytes"]
        """Of them left out for the output limit."""
        self.dropped_from: int | None = totals.get("dropped_from")
        """Where the left-out ones would stand."""

    @property
    def bytes(self) -> _Bytes:
        if len(self._parts) > 1:
            self._parts = [b"".join(self._parts)]
        return self._parts[0] if self._parts else b""

    @property
    def text(self) -> str:
        """As UTF-8; bytes that are none become U+FFFD."""
        if self._text is None:
            self._text = self.bytes.decode("utf-8", "replace")
        return self._text

    @property
    def truncated(self) -> bool:
        """Whether bytes were left out for the output limit."""
        return self.dropped_bytes > 0

    def __str__(self) -> str:
        return self.text

    def __bytes__(self) -> _Bytes:
        return self.bytes

    def __len__(self) -> int:
        return len(self.bytes)

    def __repr__(self) -> str:
        return f"Output({self.bytes[:60]!r}{'…' if len(self) > 60 else ''}, total_bytes={self.total_bytes})"

    def __getstate__(self) -> tuple[_Bytes, dict[str, Any]]:
        names = ("total_bytes", "dropped_bytes", "dropped_from")
        return self.bytes, {name: getattr(self, name) for name in names}

    def __setstate__(self, state: tuple[Any, dict[str, Any]]) -> None:
        self.__init__([state[0]], state[1])  # type: ignore[misc]


@dataclass(frozen=True)
class Total:
    """What a command wrote to one stream."""

    total_bytes: int
    dropped_bytes: int
    """Of them left out for the output limit."""
    dropped_from: int | None
    """Where the left-out ones would stand."""


@dataclass(frozen=True)
class Totals:
    stdout: Total
    stderr: Total


@dataclass(frozen=True)
class CommandEnd:
    """How a command ended, without its output."""

    id: str
    sandbox: str
    outcome: Outcome
    duration: float
    """Start to end inside the sandbox, seconds."""
    pid: int | None
    """Of the command's first process, as the sandbox sees it; None where none started."""
    background: int
    """Processes of it that live on, by design."""
    cpu_time: float | None
    """Seconds."""
    max_rss_bytes: int | None
    totals: Totals

    @property
    def exit_code(self) -> int | None:
        """0 to 255 where it exited by itself, else None: look at ``outcome``."""
        return self.outcome.code if isinstance(self.outcome, Exited) else None

    @property
    def ok(self) -> bool:
        """Whether it exited with 0."""
        return self.exit_code == 0


@dataclass(frozen=True)
class ExecResult(CommandEnd):
    """What a command did, and its output."""

    stdout: Output
    stderr: Output
    """Empty with ``merge`` : all is in ``stdout``, in order."""

    @property
    def truncated(self) -> bool:
        """Whether any output was left out for the output limit."""
        return self.stdout.truncated or self.stderr.truncated

    def check(self) -> ExecResult:
        """This, where the command exited with 0; raises CommandFailedError otherwise."""
        if self.ok:
            return self
        said = _last_line(self.stderr.text) or _last_line(self.stdout.text)
        started: Started = "no" if isinstance(self.outcome, NotStarted) else "yes"
        raise CommandFailedError(
            f"the command {self.outcome}{': ' + said if said else ''}",
            result=self,
            sandbox=self.sandbox,
            started=started,
        )


def _last_line(text: str) -> str:
    return text.rstrip().rpartition("\n")[2][:200]


def _end_fields(frame: dict[str, Any], sandbox: str) -> dict[str, Any]:
    cpu_ms = frame.get("cpu_ms")
    return {
        "id": frame["id"],
        "sandbox": sandbox,
        "outcome": outcome_from_wire(frame["outcome"]),
        "duration": frame["duration_ms"] / 1000,
        "pid": frame.get("pid"),
        "background": frame.get("background", 0),
        "cpu_time": None if cpu_ms is None else cpu_ms / 1000,
        "max_rss_bytes": frame.get("max_rss_bytes"),
        "totals": Totals(*(_total_of(frame["totals"][name]) for name in ("stdout", "stderr"))),
    }


def _total_of(wire: dict[str, Any]) -> Total:
    return Total(wire["total_bytes"], wire["dropped_bytes"], wire.get("dropped_from"))


def end_of(frame: dict[str, Any], sandbox: str) -> CommandEnd:
    return CommandEnd(**_end_fields(frame, sandbox))


def result_of(frame: dict[str, Any], sandbox: str, output: dict[str, list[bytes]]) -> ExecResult:
    """From a checked end frame, and what came in chunks before it."""
    for name in ("stdout", "stderr"):
        if frame.get(name):
            output[name].append(frame[name])
    totals = frame["totals"]
    return ExecResult(
        **_end_fields(frame, sandbox),
        stdout=Output(output["stdout"], totals["stdout"]),
        stderr=Output(output["stderr"], totals["stderr"]),
    )


@dataclass(frozen=True)
class Chunk:
    """A part of a command's output, as it came."""

    stream: Literal["stdout", "stderr"]
    data: bytes
    offset: int
    """Counts the stream's bytes from the command's start."""
    text: str = field(repr=False)
    """As UTF-8. A character that is not complete yet comes with the chunk that completes it, so that all chunks'
    texts joined are the stream's text."""


class Chunker:
    """Makes chunks of one command, with text that is right also where a character is split."""

    def __init__(self) -> None:
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": make("replace"), "stderr": make("replace")}
        self._next = {"stdout": 0, "stderr": 0}

    def of(self, stream: Literal["stdout", "stderr"], data: bytes, offset: int | None = None) -> Chunk:
        at = self._next[stream] if offset is None else offset
        self._next[stream] = at + len(data)
        return Chunk(stream, data, at, self._decoders[stream].decode(data))
