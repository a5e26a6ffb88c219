"""A command's standard input: written at offsets, so that a part that is sent again is taken once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from ._wire.box import Box
from ._wire.parts import Data, Part, Source, SourceError, as_bytes, heeded, parts_of, send_parts
from .errors import CanceledError, InvalidRequestError, SandmeshError, SessionClosedError

Input = Data

# A command that does not read leaves its input unanswered, which is no fault: one try waits this long.
_TRY_S = 24 * 3600.0
_AGAIN_S = 30.0


async def _send(box: Box, command_id: str, offset: int, data: bytes, last: bool) -> int:
    """Answers how many bytes the command's side has taken by then."""
    request = {"id": command_id, "offset": offset, "data": data, "eof": last}
    answer = await box.call("stdin", request, timeout=_TRY_S, again_after=_AGAIN_S)
    return int(answer["received"])


def input_parts(source: Source) -> AsyncIterator[Part]:
    """As they come: a command may answer what it has read so far. Raises SourceError."""
    return parts_of(heeded(source, "stdin"), "stdin", live=True)


def feed(
    box: Box, command_id: str, source: Source, begun: asyncio.Future[Any], fail: Callable[[CanceledError], None]
) -> asyncio.Task[None]:
    """Sends ``source`` once ``begun`` is done, then the end. ``fail`` is told what is wrong with the source."""

    async def work() -> None:
        try:
            await asyncio.wait({begun})
            await send_parts(input_parts(source), lambda *part: _send(box, command_id, *part), _TRY_S)
        except SourceError as error:
            canceled = CanceledError(str(error), field="stdin", sandbox=box.id, started="yes")
            canceled.__cause__ = error.__cause__
            fail(canceled)
        except SandmeshError:
            # The command has ended or does not read: its writer learns no more of that than a pipe's would.
            return

    return asyncio.ensure_future(work())


class StdinWriter:
    """For commands that were started with ``stdin_open``."""

    def __init__(
        self, box: Box, command_id: str, begun: asyncio.Future[Any] | None = None, *, known: bool = True
    ) -> None:
        """``known``: nobody else has written. Otherwise it is asked how much was: what is written at an offset that was
        written at before would count as repeated, and be skipped."""
        self._box = box
        self._id = command_id
        self._begun = begun
        self._offset = 0 if known else None  # counted after what the request carried
        self._lock = asyncio.Lock()
        self._closed = False

    async def write(self, data: str | bytes) -> None:
        """Returns when the command's side has taken it. Raises SessionClosedError (``closed``) after ``close``,
        UnknownCommandError."""
        if self._closed:
            raise SessionClosedError("stdin is closed", reason="closed")
        whole = as_bytes(data, "data")
        if whole is None:
            raise InvalidRequestError("data: must be text or bytes", field="data")
        if whole:
            await self._write(whole, False)

    async def close(self) -> None:
        """The command reads the end. Does nothing the second time."""
        if not self._closed:
            self._closed = True
            await self._write(b"", True)

    async def _write(self, data: bytes, last: bool) -> None:
        async with self._lock:
            if self._begun is not None:
                await asyncio.wait({self._begun})
            base = self._offset if self._offset is not None else await _send(self._box, self._id, 0, b"", False)
            # Should this fail or be cancelled, nobody knows how much was taken: it is asked before the next one.
            self._offset = None
            async for offset, part, end in parts_of((data,), "data"):
                await _send(self._box, self._id, base + offset, part, end and last)
            self._offset = base + len(data)
