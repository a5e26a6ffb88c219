"""Whose turn it is to read what can be read once, where several tasks or threads ask for it."""

from __future__ import annotations

import asyncio
import threading
import weakref
from types import AsyncGeneratorType
from typing import Any, Generic, TypeVar

from ..errors import InvalidRequestError

T = TypeVar("T")
Reader = weakref.ref[Any]
"""The task, or with ``sandmesh.sync`` the thread, of a loop."""


def reader_here() -> Reader:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # on a thread without a loop
        task = None
    return thread_here() if task is None else weakref.ref(task)


def thread_here() -> Reader:
    return weakref.ref(threading.current_thread())


def _goes_on(reader: Reader) -> bool:
    who = reader()
    return not who.done() if isinstance(who, asyncio.Future) else who is not None and who.is_alive()


class Turns(Generic[T]):
    """``items``, by one at a time: a loop, which has its turn until it is over; whoever asks for one item; or, while
    nobody else wants them, ``drain``, which throws them away. On the thread of one event loop."""

    def __init__(self, items: AsyncGeneratorType[T, None]) -> None:
        self._items = items
        self._loop: Reader | None = None
        # What ``drain`` waits for, until someone takes it over.
        self._unwanted: asyncio.Task[T] | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._stopped = False

    def begin(self, loop: Reader) -> None:
        """Raises InvalidRequestError where another's loop is not over, or another waits for an item."""
        if self._read_beside(loop) or (self._unwanted is None and self._items.ag_running):
            raise _read_already()
        self._loop = loop

    def end(self, loop: Reader) -> None:
        if self._loop is loop:
            self._loop = None
        self._wake()

    async def step(self) -> T:
        """Raises InvalidRequestError while another waits for an item; StopAsyncIteration."""
        unwanted, self._unwanted = self._unwanted, None
        if unwanted is None and self._items.ag_running:
            raise _read_already()
        try:
            return await (anext(self._items) if unwanted is None else unwanted)
        finally:
            self._wake()

    async def drain(self, reader: Reader) -> None:
        """Returns when all was read, by a loop beside this one or by nobody, or after ``stop``."""
        while not self._stopped:
            if self._read_beside(reader) or self._items.ag_running or self._unwanted is not None:
                await self._change()
            elif not await self._throw_one_away():
                return

    async def _throw_one_away(self) -> bool:
        """False behind the last."""
        step = self._unwanted = asyncio.ensure_future(self._next())
        try:
            await asyncio.wait({step})
        except asyncio.CancelledError:
            if self._unwanted is step:
                step.cancel()
                await asyncio.wait({step})
            raise
        finally:
            taken = self._unwanted is not step
            if not taken:
                self._unwanted = None
                self._wake()
        if not taken:
            try:
                step.result()
            except StopAsyncIteration:
                return False
        return True

    async def _next(self) -> T:
        return await anext(self._items)

    def stop(self) -> None:
        """There will be no more."""
        self._stopped = True
        self._wake()

    def _read_beside(self, reader: Reader) -> bool:
        """Whether another's loop reads. One that was begun where this one is asked for cannot go on meanwhile."""
        return self._loop is not None and self._loop() is not reader() and _goes_on(self._loop)

    async def _change(self) -> None:
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(change)
        try:
            await change
        finally:
            self._waiting.discard(change)

    def _wake(self) -> None:
        for change in self._waiting:
            if not change.done():
                change.set_result(None)


def _read_already() -> InvalidRequestError:
    return InvalidRequestError(
        "this stream is being read already, elsewhere: `attach` by the command's id is another reader of its output"
    )
