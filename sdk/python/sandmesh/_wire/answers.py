"""The answers to requests."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from ..errors import SandmeshError
from .ids import random_name


class AnswerStream:
    """The answers to one request, in order of arrival."""

    __slots__ = (
        "_closed",
        "_error",
        "_forget",
        "_items",
        "_loop",
        "_waiter",
        "after_cut_s",
        "is_cut",
        "responder",
        "subject",
        "token",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        responder: str,
        subject: str,
        token: str,
        forget: Callable[[str], None],
    ) -> None:
        self.responder = responder
        self.subject = subject
        self.token = token
        """The end of the reply subject: the reader's name in ``credit``."""
        self.after_cut_s = 0.0
        """How long after the connection's return an answer is waited for that may have been lost with it."""
        self.is_cut = False
        """The connection was lost since it was asked."""
        self._loop = loop
        self._forget = forget
        self._items: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._error: SandmeshError | None = None
        self._closed = False

    @property
    def is_answered(self) -> bool:
        """There is something to be read."""
        return bool(self._items)

    async def next(self) -> bytes:
        """Raises what ``fail`` was called with, once all that came before has been read."""
        while not self._items:
            if self._error is not None:
                raise self._error
            self._waiter = self._loop.create_future()
            await self._waiter
        return self._items.popleft()

    def push(self, data: bytes) -> None:
        self._items.append(data)
        self._wake()

    def fail(self, error: SandmeshError) -> None:
        """The first error stays."""
        if self._error is None:
            self._error = error
            self._wake()

    def cancel(self) -> None:
        """Whoever waits for the next one is cancelled."""
        if self._waiter is not None:
            self._waiter.cancel()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._forget(self.token)


class Asked:
    """All requests of one connection whose answers are waited for, each by a token of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        # Tokens are of this connection alone: other processes of the same user do not get its answers.
        self.name = random_name(12)
        self._count = 0
        self.streams: dict[str, AnswerStream] = {}
        """By token."""

    def add(self, responder: str, subject: str) -> AnswerStream:
        """It must be closed."""
        self._count += 1
        token = f"{self.name}.{self._count:x}"
        stream = AnswerStream(self._loop, responder, subject, token, self._forget)
        self.streams[token] = stream
        return stream

    def _forget(self, token: str) -> None:
        self.streams.pop(token, None)

    def fail(self, error: SandmeshError, subject: str | None = None) -> None:
        """All of them, or those that were sent to ``subject``."""
        for stream in list(self.streams.values()):
            if subject is None or stream.subject == subject:
                stream.fail(error)

    def cut(self) -> None:
        """The connection was lost."""
        for stream in self.streams.values():
            stream.is_cut = True

    def returned(self, error: SandmeshError) -> None:
        """It is back: fails those whose answers may be lost. What was asked meanwhile is only being sent."""
        for stream in list(self.streams.values()):
            if not stream.is_cut:
                continue
            if stream.after_cut_s > 0:
                self._loop.call_later(stream.after_cut_s, stream.fail, error)
            else:
                stream.fail(error)

    def cancel(self) -> None:
        """All who wait for an answer are cancelled."""
        for stream in list(self.streams.values()):
            stream.cancel()
