"""Uploads: a byte stream in numbered parts, a few in flight, each answered; what got lost is sent again from the first
part that is not known to have arrived. Memory is the window and no more."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple, Union

from ..errors import InternalError, InvalidRequestError, NotFoundError, SandmeshError
from .lost import may_be_lost
from .schema import limit

Source = Union[Iterable[Union[str, bytes]], AsyncIterable[Union[str, bytes]]]  # noqa: UP007
Data = Union[str, bytes, Source]  # noqa: UP007
"""Text (as UTF-8), bytes (or what has the buffer protocol), or parts of them as they come."""
Part = tuple[int, bytes, bool]
"""Offset, data, whether it is the last."""
Send = Callable[[int, bytes, bool], Awaitable[object]]

WINDOW = 4
GIVE_UP_S = 60.0
_MAX_GAPS = 4


def as_bytes(data: object, field: str) -> bytes | None:
    """None where it is neither text nor bytes; raises InvalidRequestError where the text has no UTF-8."""
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError:
            raise InvalidRequestError(f"{field}: must not contain half of a surrogate pair", field=field) from None
    if type(data) is bytes:
        return data  # bytes() of a view would copy all of it
    try:
        return bytes(memoryview(data))  # type: ignore[arg-type]
    except TypeError:
        return None


def split(data: Data, field: str) -> tuple[bytes | None, Source]:
    """What is sent at once, where it is little, or else what is sent in parts. Raises InvalidRequestError."""
    whole = as_bytes(data, field)
    if whole is not None and len(whole) <= limit("max_chunk_bytes"):
        return whole, ()
    return None, source_of(data if whole is None else whole, field)


def source_of(data: Data, field: str) -> Source:
    """What is sent in parts, whole or as it comes. Raises InvalidRequestError."""
    whole = as_bytes(data, field)
    if whole is not None:
        return (whole,)
    if isinstance(data, AsyncIterable):
        return data
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | Mapping):
        return data
    raise InvalidRequestError(f"{field}: must be text, bytes or an iterable of them", field=field)


def _piece(piece: object, field: str) -> bytes:
    data = as_bytes(piece, field)
    if data is None:
        raise InvalidRequestError(f"{field}: has a part that is neither text nor bytes", field=field)
    return data


class SourceError(Exception):
    """A caller's source raised (the cause), or gave what is neither text nor bytes. Apart from what becomes of the
    sending, which may be of the same class: the source may be another sandbox's file."""


async def heeded(source: Source, field: str) -> AsyncIterator[bytes]:
    """The source's parts. Raises SourceError."""
    try:
        async for piece in _pieces(source, field):
            yield piece
    except Exception as error:
        raise SourceError(f"{field}'s source failed: {error}") from error


async def _pieces(source: Source, field: str) -> AsyncIterator[bytes]:
    if isinstance(source, AsyncIterable):
        async for piece in source:
            yield _piece(piece, field)
    else:
        for piece in source:
            yield _piece(piece, field)


async def _with_pauses(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes | None]:
    """None wherever the next piece is not there by the loop's next round."""
    while True:
        coming = asyncio.ensure_future(_next(pieces))
        try:
            await asyncio.sleep(0)
            if not coming.done():
                yield None
            piece = await coming
        finally:
            coming.cancel()
        if piece is None:
            return
        yield piece


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


async def parts_of(source: Source, field: str, *, live: bool = False) -> AsyncIterator[Part]:
    """Cuts and joins to full parts, the last one marked; an empty source is one empty last part. With ``live`` what the
    source has given goes whenever it lets one wait: somebody may answer it. Raises InvalidRequestError with ``field``
    where a piece of the source is neither text nor bytes."""
    full = limit("max_chunk_bytes")
    offset, buffer = 0, bytearray()
    pieces = _pieces(source, field)
    async for piece in _with_pauses(pieces) if live else pieces:
        if piece is None:
            if buffer:
                yield offset, bytes(buffer), False
                offset += len(buffer)
                buffer.clear()
            continue
        view = memoryview(piece)
        # Whole parts of a large piece are copied once, but for the last, which is known only when more has come.
        while not buffer and len(view) > full:
            yield offset, bytes(view[:full]), False
            offset += full
            view = view[full:]
        while view:
            # Sent only when more has come, so that the last part, whatever its length, is known to be the last.
            if len(buffer) == full:
                yield offset, bytes(buffer), False
                offset += full
                buffer.clear()
            taken = view[: full - len(buffer)]
            buffer += taken
            view = view[len(taken) :]
    yield offset, bytes(buffer), True


async def send_parts(parts: AsyncIterator[Part], send: Send, give_up: float = GIVE_UP_S) -> int:
    """Sends all; returns the number of bytes when the last part was accepted, and raises otherwise."""
    sending = _Sending(send, give_up)
    try:
        async for part in parts:
            await sending.add(part)
        return await sending.finish()
    finally:
        sending.cancel()


class _Flying(NamedTuple):
    part: Part
    answer: asyncio.Future[None]
    known: bool
    """A part was known to have been accepted when this one was sent."""


class _Sending:
    def __init__(self, send: Send, give_up: float) -> None:
        self._send = send
        self._give_up = give_up
        self._flying: deque[_Flying] = deque()
        self._accepted_any = False
        # Bytes; known when the last part was accepted.
        self._total: int | None = None

    async def add(self, part: Part) -> None:
        if len(self._flying) >= WINDOW:
            await self._settle_oldest()
        self._launch(part)

    async def finish(self) -> int:
        while self._flying:
            await self._settle_oldest()
        if self._total is None:
            raise InternalError("the sending ended, and its last part was not accepted")
        return self._total

    def cancel(self) -> None:
        for flying in self._flying:
            if not flying.answer.cancel():
                _accepted(flying)

    def _launch(self, part: Part) -> None:
        self._flying.append(_Flying(part, asyncio.ensure_future(self._deliver(part)), self._accepted_any))

    async def _deliver(self, part: Part) -> None:
        offset, data, last = part
        await self._send(*part)
        self._accepted_any = True
        if last:
            self._total = offset + len(data)

    async def _settle_oldest(self) -> None:
        deadline, wait, gaps = time.monotonic() + self._give_up, 0.05, 0
        while True:
            oldest = self._flying[0]
            try:
                await asyncio.shield(oldest.answer)
                self._flying.popleft()
                return
            except SandmeshError as error:
                gap = _is_gap(error, oldest.known)
                gaps += gap
                if not (may_be_lost(error) or (gap and gaps <= _MAX_GAPS)) or time.monotonic() > deadline:
                    raise
            await asyncio.wait({flying.answer for flying in self._flying})
            await asyncio.sleep(wait)
            wait = min(wait * 2, 1.0)
            parts = [flying.part for flying in self._flying if not _accepted(flying)]
            self._flying.clear()
            for part in parts:
                self._launch(part)


def _is_gap(error: SandmeshError, known: bool) -> bool:
    """A part that overtook the one before it, which came later, is refused for the gap; more often than ``_MAX_GAPS``
    in a row it is the other side that has lost what it had. Before the first part there is no transfer at all; one that
    was ``known`` to be there was given up, with all that had been accepted."""
    if isinstance(error, NotFoundError):
        return error.field == "transfer" and not known
    return isinstance(error, InvalidRequestError) and error.field == "offset"


def _accepted(flying: _Flying) -> bool:
    # Looked at also where it failed, so that asyncio does not complain of an exception nobody saw.
    return not flying.answer.cancelled() and flying.answer.exception() is None
