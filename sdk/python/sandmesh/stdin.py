"""A command's standard input: written at offsets, so that a part that is sent again is taken once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from ._wire.box import Box
from ._wire.caller import ABSENT_S
from ._wire.follow import Follower
from ._wire.parts import Data, Part, Source, SourceError, as_bytes, heeded, parts_of, send_parts
from .errors import CanceledError, InvalidRequestError, SandmeshError, SessionClosedError, UnknownCommandError

Input = Data

# A command that does not read leaves its input unanswered, which is no fault: one try waits this long.
_TRY_S = 24 * 3600.0
_AGAIN_S = 30.0


async def tell(
    box: Box, follower: Follower | None, verb: str, request: dict[str, Any], **options: Any
) -> dict[str, Any]:
    """One request to a command that may be on its way itself: lost on it, it is asked for again, and so is this, which
    the sandbox refuses meanwhile. ``follower``: who asks for it; None where it is known to be there."""
    wait = 0.05
    while True:
        # When this is sent: what was refused before it was known may be so by now.
        known = follower is None or follower.known
        try:
            answer = await box.call(verb, request, **options)
        except UnknownCommandError:
            if known or follower is None or not (follower.known or follower.unknown()):
                raise
        else:
            if follower is not None:
                follower.taken()
            return answer
        await asyncio.sleep(wait)
        wait = min(wait * 2, 1.0)


async def _send(
    box: Box,
    command_id: str,
    offset: int,
    data: bytes,
    last: bool,
    follower: Follower | None = None,
    absent: float = ABSENT_S,
) -> int:
    """Answers how many bytes the command's side has taken by then."""
    request = {"id": command_id, "offset": offset, "data": data, "eof": last}
    answer = await tell(box, follower, "stdin", request, timeout=_TRY_S, again_after=_AGAIN_S, absent=absent)
    return int(answer["received"])


def input_parts(source: Source) -> AsyncIterator[Part]:
    """As they come: a command may answer what it has read so far. Raises SourceError."""
    return parts_of(heeded(source, "stdin"), "stdin", live=True)


def feed(
    box: Box,
    command_id: str,
    source: Source,
    begun: asyncio.Future[Any],
    follower: Follower,
    fail: Callable[[SandmeshError], None],
) -> asyncio.Task[None]:
    """Sends ``source`` once ``begun`` is done, then the end. ``fail`` is told what is wrong with the source, or why not
    all of it could be delivered: the command would wait for the rest for ever. (A sandbox that is away is waited for;
    of its loss ``follower`` hears, and knows more.)"""

    async def send(offset: int, data: bytes, last: bool) -> None:
        await _send(box, command_id, offset, data, last, follower, _TRY_S)

    async def work() -> None:
        try:
            await asyncio.wait({begun})
            await send_parts(input_parts(source), send, _TRY_S)
        except SourceError as error:
            canceled = CanceledError(str(error), field="stdin", sandbox=box.id, started="yes")
            canceled.__cause__ = error.__cause__
            fail(canceled)
        except UnknownCommandError:
            # It was there and has ended, or is refused: whoever follows it learns so, and here no more than of a pipe.
            follower.ask_again()
        except SandmeshError as error:
            if box.lifeline.error is None:
                fail(error.saying("yes" if follower.known else follower.started))

    return asyncio.ensure_future(work())


class StdinWriter:
    """For commands that were started with ``stdin_open``."""

    def __init__(
        self,
        box: Box,
        command_id: str,
        begun: asyncio.Future[Any] | None = None,
        follower: Follower | None = None,
        *,
        known: bool = True,
    ) -> None:
        """``begun`` and ``follower``: of a command that may not be there yet. ``known``: nobody else has written.
        Otherwise it is asked how much was: what is written at an offset that was written at before would count as
        repeated, and be skipped."""
        self._box = box
        self._id = command_id
        self._begun = begun
        self._follower = follower
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

    async def _feed(self, source: Source) -> None:
        """All of it, and the end; a sandbox that is away is waited for until it is known as lost. Raises SourceError,
        and as ``write``."""
        async for _offset, data, _last in input_parts(source):
            if self._closed:
                return
            await self._write(data, False, _TRY_S)
        if not self._closed:
            self._closed = True
            await self._write(b"", True, _TRY_S)

    async def _write(self, data: bytes, last: bool, absent: float = ABSENT_S) -> None:
        async def send(offset: int, part: bytes, end: bool) -> int:
            return await _send(self._box, self._id, offset, part, end, self._follower, absent)

        async with self._lock:
            if self._begun is not None:
                await asyncio.wait({self._begun})
            base = self._offset if self._offset is not None else await send(0, b"", False)
            # Should this fail or be cancelled, nobody knows how much was taken: it is asked before the next one.
            self._offset = None
            async for offset, part, end in parts_of((data,), "data"):
                await send(base + offset, part, end and last)
            self._offset = base + len(data)
