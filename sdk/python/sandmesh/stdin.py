"""A command's standard input: written at offsets, counted for each who writes, so that a part that is sent again is
taken once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from ._wire.box import Box
from ._wire.caller import ABSENT_S
from ._wire.follow import Follower
from ._wire.handle import Handle
from ._wire.ids import new_uuid7
from ._wire.parts import Data, Part, Source, SourceError, as_bytes, heeded, parts_of, send_parts
from .errors import (
    CanceledError,
    ConflictError,
    InvalidRequestError,
    SandmeshError,
    SessionClosedError,
    UnknownCommandError,
)

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
    writer: str,
    offset: int,
    data: bytes,
    last: bool,
    follower: Follower | None = None,
    absent: float = ABSENT_S,
) -> dict[str, Any]:
    """``writer``: the token under which the offsets are counted."""
    request = {"id": command_id, "writer": writer, "offset": offset, "data": data, "eof": last}
    return await tell(box, follower, "stdin", request, timeout=_TRY_S, again_after=_AGAIN_S, absent=absent)


def _raise_if_others_wrote(answer: dict[str, Any], end: int) -> None:
    """A daemon of before counts all bytes together, and skips those of one who writes where another has just written.
    It can be seen where it answers that it has more than came from here, up to ``end``."""
    if "writer" not in answer and answer["received"] > end:
        raise ConflictError(
            "another client wrote to stdin at the same time, which this sandbox's daemon is too old to tell apart:"
            " not all of this may have been taken",
            field="offset",
            started="yes",
        )


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
    stays_open: bool,
) -> asyncio.Task[None]:
    """Sends ``source`` once ``begun`` is done, then the end, unless it ``stays_open``. ``fail`` is told what is wrong
    with the source, or why not all of it could be delivered: the command would wait for the rest for ever. (A sandbox
    that is away is waited for; of its loss ``follower`` hears, and knows more.)"""
    writer = new_uuid7()

    async def send(offset: int, data: bytes, last: bool) -> None:
        await _send(box, command_id, writer, offset, data, last and not stays_open, follower, _TRY_S)

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


class StdinWriter(Handle):
    """For commands that were started with ``stdin_open``. Writes in order. Several may write to one command, here and
    in other clients: a write of up to 256 KiB is taken in one piece, the parts of a longer one perhaps with others'
    between them, as of a pipe's writers."""

    def __init__(
        self,
        box: Box,
        command_id: str,
        begun: asyncio.Future[Any] | None = None,
        follower: Follower | None = None,
        *,
        known: bool = True,
    ) -> None:
        """``begun`` and ``follower``: of a command that may not be there yet. ``known``: of a command that was
        started here. To another one others may have written, and the daemon be one that counts all bytes together: it
        is asked then."""
        self._box = box
        self._id = command_id
        self._begun = begun
        self._follower = follower
        self._writer = new_uuid7()  # of one sequence of writes that all succeeded
        self._offset = 0 if known else None  # counted after what the request carried
        self._apart: bool | None = None  # whether this daemon counts each writer's bytes apart; None: it has not told
        self._lock = asyncio.Lock()
        self._closed = False
        self._feeding: asyncio.Task[None] | None = None

    def _behind(self, feeding: asyncio.Task[None]) -> None:
        """All that ``feeding`` sends comes before what is written from now on."""
        self._feeding = feeding

    async def write(self, data: str | bytes) -> None:
        """Returns when the command's side has taken it. Raises SessionClosedError (``closed``) after ``close``, also
        another client's, UnknownCommandError, and ConflictError where another client wrote at the same time and the
        sandbox's daemon is one of before, which cannot tell the two apart."""
        if self._closed:
            raise SessionClosedError("stdin is closed", reason="closed")
        whole = as_bytes(data, "data")
        if whole is None:
            raise InvalidRequestError("data: must be text or bytes", field="data")
        if whole:
            await self._turn()
            await self._write(whole, False)

    async def close(self) -> None:
        """The command reads the end, whoever else writes. Does nothing the second time."""
        if not self._closed:
            self._closed = True
            await self._turn()
            await self._write(b"", True)

    async def _turn(self) -> None:
        if self._feeding is not None:
            await asyncio.wait({self._feeding})

    async def _feed(self, source: Source, stays_open: bool) -> None:
        """All of it, and the end, unless it ``stays_open``; a sandbox that is away is waited for until it is known as
        lost. Raises SourceError, and as ``write``."""
        async for _offset, data, _last in input_parts(source):
            await self._write(data, False, _TRY_S)
        if not stays_open:
            self._closed = True
            await self._write(b"", True, _TRY_S)

    async def _write(self, data: bytes, last: bool, absent: float = ABSENT_S) -> None:
        async with self._lock:
            if self._begun is not None:
                await asyncio.wait({self._begun})
            base = self._offset if self._offset is not None else await self._renew(absent)
            # Should this fail or be cancelled, nobody knows how much was taken.
            self._offset = None
            async for offset, part, end in parts_of((data,), "data"):
                if not await self._takes(base + offset, part, end and last, absent):
                    base = await self._renew(absent) - offset
                    await self._send(base + offset, part, end and last, absent)
            if self._apart:
                self._offset = base + len(data)

    async def _renew(self, absent: float) -> int:
        """The offset at which another writer begins, of whom nothing was sent: what of the one before is still on its
        way takes no byte's place. A daemon that counts all bytes together is asked where that is, before each write:
        by turns, at least, several may write then."""
        self._writer = new_uuid7()
        return 0 if self._apart else int((await self._send(0, b"", False, absent))["received"])

    async def _send(self, offset: int, data: bytes, last: bool, absent: float) -> dict[str, Any]:
        answer = await _send(self._box, self._id, self._writer, offset, data, last, self._follower, absent)
        self._apart = "writer" in answer
        return answer

    async def _takes(self, offset: int, data: bytes, last: bool, absent: float) -> bool:
        """False where the daemon no longer knows this writer, after many others: all before was taken, nothing of this
        was."""
        try:
            answer = await self._send(offset, data, last, absent)
        except InvalidRequestError as error:
            if error.field == "offset" and self._apart and offset > 0:
                return False
            raise
        if data:
            _raise_if_others_wrote(answer, offset + len(data))
        return True
