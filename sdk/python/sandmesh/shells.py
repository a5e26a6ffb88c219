"""Sessions: a persistent shell in which cwd, exports, functions and background jobs live on."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import commands, streams
from ._wire.box import Box
from ._wire.handle import Handle
from ._wire.opening import leave_block
from .errors import SandmeshError

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .results import ExecResult


@dataclass(frozen=True)
class SessionInfo:
    session: str
    shell: str
    pid: int
    busy: bool


def session_of(wire: dict[str, Any]) -> SessionInfo:
    return SessionInfo(wire["session"], wire["shell"], wire["pid"], wire["busy"])


class Shell(Handle):
    def __init__(self, box: Box, info: SessionInfo) -> None:
        self._box = box
        self.name = info.session
        self.shell = info.shell
        """Path of the shell that runs."""
        self.pid = info.pid

    async def exec(self, line: str, *, check: bool = False, **options: Unpack[commands.CommandOptions]) -> ExecResult:
        """Runs a line in this shell. Raises SessionClosedError where it has ended (``exit``), and
        IncompleteCommandError for a line that does not end, such as one with an open quote: nothing of it runs, and
        the session lives on."""
        options["session"] = self.name
        return await commands.run(self._box, line, check, options)

    def stream(self, line: str, **options: Unpack[commands.CommandOptions]) -> streams.CommandStream:
        options["session"] = self.name
        return streams.start_stream(self._box, line, False, **options)

    async def close(self) -> None:
        """Ends the shell and what it runs."""
        await self._box.call("session_close", {"session": self.name})

    async def __aenter__(self) -> Shell:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await leave_block(f"shell {self.name} of {self._box.id} was not closed", self._end(), error)

    async def _end(self) -> None:
        try:
            await self.close()
        except SandmeshError:
            # A session ends with its sandbox.
            if self._box.lifeline.error is None:
                raise
