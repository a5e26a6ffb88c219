"""Follows one command by its id from its first byte to its outcome, over lost answers, reconnects and restarts of the
broker. The command itself runs at most once: every question carries the same id."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator
from typing import Any, NamedTuple

from ..errors import (
    BusyError,
    ConnectionError,
    DeadlineError,
    OutputGoneError,
    SandmeshError,
    Started,
    UnreachableError,
)
from .answers import AnswerStream
from .box import Box
from .caller import ABSENT_S
from .codec import encode, parse_frame
from .credit import Credit
from .lost import may_be_lost, started_nothing
from .progress import STREAMS, Frame, Progress
from .schema import limit
from .silence import Silence
from .subjects import sandbox_subject

# No frame for this long: ask again by the id, in case the answer was lost on the daemon's side.
_REASK_S = 60.0
# At the caller's limit the sandbox has this long to say that it is there.
_OVERDUE_S = 1.0
# An answer that the server has sent already is here by then.
_ON_ITS_WAY_S = 0.5
# Answers with missing bytes, one after another, after which they count as lost for good.
_MAX_GAPS = 5


class Patience(NamedTuple):
    limit_s: float
    """The caller's."""
    grace_s: float
    """How much longer a sandbox that is there is waited for: it ends the command at its limit, and with some grace."""


class Follower:
    """``exec`` is the exec request, or None where the command runs already and is only attached to."""

    def __init__(
        self,
        box: Box,
        command_id: str,
        exec: dict[str, Any] | None = None,
        *,
        start: dict[str, int] | None = None,
        keep: str | None = None,
        patience: Patience | None = None,
    ) -> None:
        self.started: Started = "yes" if exec is None else "no"
        box.lifeline.throw_if_lost(self.started)
        self._box = box
        try:
            box.caller.throw_if_closed()
        except SandmeshError as error:
            raise self._told(error) from None
        self._id = command_id
        self._exec = exec
        self._progress = Progress(keep != "tail", start or {})
        self._patience = patience
        self._begun = time.monotonic()
        self._asking = False
        self._started_before: Started = self.started
        self._stream: AnswerStream | None = None
        # Of the question that is answered in frames, of which the last has not come.
        self._read_by: str | None = None
        # The token of the first question.
        self._reader: str | None = None
        self._first: asyncio.Future[AnswerStream] | None = None
        self._is_known = False
        self._is_over = False
        self._failure: SandmeshError | None = None
        self._heard = False
        self._heard_at = time.monotonic()
        self._silence: Silence | None = None
        self._gaps = 0
        self._absent_since: float | None = None
        self._wait = 0.05

    def begin(self) -> asyncio.Future[AnswerStream]:
        """Asks at once, not only when ``frames`` is read; to be waited for before anything is sent behind it."""
        if self._first is None:
            self._first = asyncio.ensure_future(self._ask())
        return self._first

    async def abandon(self) -> None:
        """Ends what ``begin`` began where ``frames`` was never read."""
        self._is_over = True
        first, self._first = self._first, None
        if first is not None and self._stream is None:
            with contextlib.suppress(SandmeshError):
                (await first).close()
            self._leave()

    def _leave(self) -> None:
        """Nobody reads on: the sandbox lets go of the answer."""
        token, self._read_by = self._read_by, None
        if token is not None:
            self._box.say_gone(token)

    def stop(self, error: SandmeshError) -> None:
        """Ends the following; ``frames`` raises ``error``."""
        self._failure = self._failure or error
        if self._stream is not None:
            self._stream.fail(error)

    @property
    def known(self) -> bool:
        """The sandbox has had the command: that it does not know it means more than a request that was lost."""
        return self._heard or self._is_known

    def taken(self) -> None:
        """The sandbox took something that was sent to the command."""
        self._is_known = True

    def unknown(self) -> bool:
        """The sandbox does not know the command: whether it may yet, since its request was lost, or is still on its
        way, and is asked again; also where nobody reads what is answered to it."""
        if self._exec is None or self.known or self._is_over or self._failure is not None:
            return False
        if self._first is None:
            if time.monotonic() - self._heard_at > _ON_ITS_WAY_S:
                self.ask_again()
            return True
        if self._first.done():
            try:
                stream = self._first.result()
            except SandmeshError as error:
                if not may_be_lost(error):
                    return False
            else:
                if stream.is_answered:
                    return False
                stream.close()
            self._first = asyncio.ensure_future(self._ask())
        return True

    def _lost(self, error: SandmeshError) -> None:
        if self.started != "unknown":
            self.stop(error.with_started(self.started))
            return

        async def settle() -> None:
            # That nobody listened may be on its way already, and says more: the command was not started.
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._box.caller.link.answers(1), _ON_ITS_WAY_S)
            self.stop(error.with_started(self.started))

        self._box.caller.behind(settle())

    async def frames(self) -> AsyncGenerator[Frame, None]:
        """Chunks in order per stream, each byte once, then one end frame; of a detached exec the started frame."""
        unsubscribe = self._box.lifeline.on_lost(self._lost)
        self._silence = Silence(self._box, self.ask_again)
        self._box.pulse.add(self)
        try:
            while True:
                self._throw_if_stopped()
                try:
                    first, self._first = self._first, None
                    self._stream = await (self._ask() if first is None else first)
                    # Left to the garbage collector, it would be a task and a wake-up of the loop more for each command.
                    async with contextlib.aclosing(self._read(self._stream)) as frames:
                        async for frame in frames:
                            yield frame
                            if frame["type"] != "chunk":
                                return
                except SandmeshError as error:
                    self._judge(error)
                finally:
                    if self._stream is not None:
                        self._stream.close()
                        self._stream = None
                await self._before_next()
        finally:
            self._is_over = True
            unsubscribe()
            self._silence.end()
            self._box.pulse.discard(self)
            self._leave()

    async def _read(self, stream: AnswerStream) -> AsyncGenerator[Frame, None]:
        """What one question is answered with; ends early where bytes are missing."""
        credit = Credit(self._box, stream.token, self._progress.next)
        while True:
            body = await stream.next()
            self._throw_if_stopped()
            # What is no chunk is the last, an error among it.
            token, self._read_by = self._read_by, None
            frame = parse_frame(body)
            if frame["type"] == "chunk":
                self._read_by = token
            self._hear()
            if frame["type"] == "chunk":
                if frame["stream"] not in STREAMS:
                    continue
                data = self._progress.take(frame["stream"], frame["offset"], frame["data"])
                if data is None:
                    return
                if data or frame.get("eof"):
                    # Duplicates are cut at the front, so that the new bytes end where the chunk ends.
                    yield {**frame, "data": data, "offset": frame["offset"] + len(frame["data"]) - len(data)}
                # Sent again, since the sandbox does not know that it came: our word of it was lost.
                await credit.received(frame["stream"], self._progress.next[frame["stream"]], now=not data)
            elif frame["type"] == "started" or self._is_whole(frame):
                yield frame
                return
            else:
                return

    async def _ask(self) -> AnswerStream:
        # Nothing heard: the request itself may be lost, so it is sent again; its id keeps it from running twice.
        next_ = self._progress.next
        if self._exec is not None and not self._heard:
            verb, request = "exec", self._exec
        else:
            verb = "attach"
            request = {
                "id": self._id,
                "from_stdout": next_["stdout"],
                "from_stderr": next_["stderr"],
                "credit_bytes": limit("first_credit_bytes"),
            }
        # A detached one is not read.
        is_read = "credit_bytes" in request
        if is_read and self._reader is not None:
            request = {**request, "reader": self._reader}
        link = self._box.caller.link
        body = encode({"version": 1, **self._box.target.fence, **request})
        self._started_before = self.started
        if self.started == "no":
            self.started = "unknown"
        stream = await link.open(self._box.id, sandbox_subject(link.tenant, self._box.id, verb), body)
        self._reader = self._reader or stream.token
        self._read_by = stream.token if is_read else None
        self._heard_now()
        return stream

    def _hear(self) -> None:
        self._heard = True
        self.started = "yes"
        self._absent_since = None
        self._wait = 0.05
        self._heard_now()

    def _heard_now(self) -> None:
        self._heard_at = time.monotonic()
        if self._silence is not None:
            self._silence.heard()

    def _is_whole(self, end: Frame) -> bool:
        if self._progress.complete(end):
            return True
        self._gaps += 1
        if self._gaps < _MAX_GAPS:
            return False
        raise OutputGoneError("a part of the command's output was lost on the way", sandbox=self._box.id, started="yes")

    def _judge(self, error: SandmeshError) -> None:
        """Returns where the question may be asked again; raises otherwise."""
        self._throw_if_stopped()
        refused = started_nothing(error)
        # This try did nothing: nobody listened, or who did refused it. One before it may have.
        if (refused or isinstance(error, UnreachableError)) and not self._heard:
            self.started = self._started_before
        self._box.note(error)
        if isinstance(error, UnreachableError):
            now = time.monotonic()
            self._absent_since = self._absent_since or now
            if now - self._absent_since <= ABSENT_S:
                self._box.caller.behind(self._box.inquire())
                return
        elif may_be_lost(error):
            return
        elif isinstance(error, BusyError) and error.reason == "reader_stalled":
            # We read too slowly for the daemon's patience; the command goes on, and so may we.
            return
        # The sandbox speaks of this question, and we know of those before.
        raise self._told(error.saying(self.started) if refused or self._heard else error)

    def _told(self, error: SandmeshError) -> SandmeshError:
        told = error.with_started(self.started)
        told.sandbox = told.sandbox or self._box.id
        return told

    async def _before_next(self) -> None:
        await asyncio.sleep(self._wait * random.uniform(0.5, 1.5))
        self._wait = min(self._wait * 2, 1.0)

    def _throw_if_stopped(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    def ask_again(self) -> None:
        if self._stream is not None:
            self._stream.fail(ConnectionError("to be asked again"))

    def on_reconnect(self) -> None:
        self.ask_again()

    def on_tick(self, now: float) -> None:
        if self._patience is not None and now - self._begun >= self._patience.limit_s:
            self._overdue(self._patience, now)
        if now - self._heard_at > _REASK_S:
            self._heard_now()
            self.ask_again()
        elif self._silence is not None:
            self._silence.on_tick(now)

    def _overdue(self, patience: Patience, now: float) -> None:
        if now - self._begun >= patience.limit_s + patience.grace_s:
            self._late()
        elif not self._asking and self._failure is None:
            self._asking = True
            self._box.caller.behind(self._look())

    async def _look(self) -> None:
        try:
            here = await asyncio.wait_for(self._box.inquire(), _OVERDUE_S) == "here"
        except asyncio.TimeoutError:
            here = False
        self._asking = False
        # Where it is lost, that has been told by now.
        if not here:
            self._late()

    def _late(self) -> None:
        waited = time.monotonic() - self._begun
        message = f"sandbox {self._box.id} did not answer within {waited:.1f} s{self._box.caller.link.absence.words}"
        self.stop(DeadlineError(message, sandbox=self._box.id, started=self.started))
