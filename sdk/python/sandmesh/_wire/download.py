"""Reads a file or a tree: chunk frames of stream ``data``, then a file_end frame. A broken read goes on where it was;
a broken pack cannot (the tree may have changed) and is an error."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable
from typing import Any, Literal

from ..errors import ConnectionError, DeadlineError, FileError, SandmeshError
from .answers import AnswerStream
from .box import Box
from .codec import encode, parse_frame
from .credit import Credit
from .ids import new_uuid7
from .lost import may_be_lost
from .schema import limit
from .subjects import sandbox_subject

# No frame for this long: the sandbox is asked whether it is there, and the rest is asked for again.
_QUIET_S = 10.0
_GIVE_UP_S = 60.0


async def download_frames(
    box: Box,
    verb: Literal["read", "pack"],
    request: dict[str, Any],
    offset: int,
    length: int | None,
    ended: Callable[[dict[str, Any]], None] | None = None,
) -> AsyncGenerator[bytes, None]:
    got, moved_at = 0, time.monotonic()
    while True:
        asked = {**request}
        if verb == "read":
            asked["offset"] = offset + got
            if length is not None:
                asked["length"] = length - got
        try:
            attempt = _Attempt(box, verb, asked)
            async with contextlib.aclosing(attempt.parts()) as parts:
                async for data in parts:
                    got += len(data)
                    moved_at = time.monotonic()
                    yield data
            if ended is not None:
                ended(attempt.end)
            return
        except SandmeshError as error:
            box.note(error)
            box.lifeline.throw_if_lost()
            again = may_be_lost(error) and (verb == "read" or got == 0)
            if not again or time.monotonic() - moved_at > _GIVE_UP_S:
                raise
        found = await box.inquire()
        box.lifeline.throw_if_lost()
        if found == "away":
            await asyncio.sleep(1)


class _Attempt:
    """One question and its answers."""

    def __init__(self, box: Box, verb: str, request: dict[str, Any]) -> None:
        self._box = box
        self._verb = verb
        self._transfer = new_uuid7()
        self._request = {"version": 1, **box.target.fence, **request, "credit_bytes": limit("first_credit_bytes")}
        self._request["transfer"] = self._transfer
        self._first = 0
        self.got = 0
        self.end: dict[str, Any] = {}

    async def parts(self) -> AsyncGenerator[bytes, None]:
        box, link = self._box, self._box.caller.link
        box.caller.throw_if_closed()
        box.lifeline.throw_if_lost()
        subject = sandbox_subject(link.tenant, box.id, self._verb)
        stream = await link.open(box.id, subject, encode(self._request))
        unsubscribe = box.lifeline.on_lost(stream.fail)
        credit = Credit(box, stream.token, {"data": 0})
        is_over = False
        try:
            while True:
                frame = parse_frame(await self._next(stream))
                if frame["type"] == "file_end":
                    is_over = True
                    if frame.get("data"):
                        self.got += len(frame["data"])
                        yield frame["data"]
                    self.end = frame
                    if self.got != frame["total_bytes"]:
                        raise ConnectionError("a part was lost on the way", sandbox=box.id)
                    return
                if frame["type"] != "chunk" or frame["stream"] != "data":
                    continue
                if frame["offset"] != self._base(frame) + self.got:
                    raise ConnectionError("a part was lost on the way", sandbox=box.id)
                self.got += len(frame["data"])
                yield frame["data"]
                await credit.received("data", self.got, base=self._first)
        except FileError:
            is_over = True
            raise
        finally:
            unsubscribe()
            stream.close()
            # It would wait for credit, and hold the file open, for a minute.
            if not is_over:
                box.abort_transfer(self._transfer)

    async def _next(self, stream: AnswerStream) -> bytes:
        loop = self._box.caller.link.loop
        late = DeadlineError(f"sandbox {self._box.id} sent nothing for {_QUIET_S:.0f} s")
        timer = loop.call_later(_QUIET_S, self._box.caller.link._late, stream, late)
        try:
            return await stream.next()
        finally:
            timer.cancel()

    def _base(self, frame: dict[str, Any]) -> int:
        """Where the stream's offsets start; its first frame tells."""
        if self.got == 0:
            self._first = frame["offset"]
        return self._first
