"""An event loop on a thread of its own, on which the asynchronous SDK does the work of the synchronous one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar

from ..errors import ConnectionError

T = TypeVar("T")
# How long an interrupted call is waited for, so that its command's end is on its way.
_INTERRUPT_S = 5.0
_CLOSE_S = 5.0


class _Call(Generic[T]):
    """One piece of work, for which another thread waits. An interrupt (Ctrl-C, or a signal handler that raises) may
    come at any step of that thread; a raw lock is the one thing to wait for that it cannot leave in a bad state."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self.work = work
        self.task: asyncio.Task[T] | None = None
        self.ended = False
        self._wake = threading.Lock()
        self._wake.acquire()

    def wait(self, timeout: float = -1) -> None:
        if not self.ended:
            self._wake.acquire(timeout=timeout)

    def end(self) -> None:
        """Wakes the one who waits; on the loop's thread, as all below."""
        if not self.ended:
            self.ended = True
            self._wake.release()

    def begin(self) -> None:
        self.task = asyncio.ensure_future(self.work)
        self.task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not complain where nobody waits any more
        self.end()

    def drop(self) -> None:
        if self.task is None:  # the interrupt came before it was handed over
            self.work.close()
            self.end()
        else:
            self.task.cancel()

    def result(self) -> T:
        if self.task is None or not self.task.done() or self.task.cancelled():
            raise ConnectionError("the connection to the mesh is closed")
        return self.task.result()


def reporting(tell: Callable[[T], object]) -> Callable[[T], None]:
    """``tell``, to be called on a loop's thread, which outlives what it raises: that is reported as of any thread."""

    def call(what: T) -> None:
        try:
            tell(what)
        except BaseException:
            threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))

    return call


async def _end(items: AsyncGenerator[Any, None]) -> None:
    # One whose step is still being cancelled ends by that.
    with contextlib.suppress(RuntimeError):
        await items.aclose()


class Loop:
    """A daemon thread: a forgotten mesh must not keep the process from ending."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._calls: set[_Call[Any]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._work, name="sandmesh-sync", daemon=True)
        self._thread.start()

    @property
    def foreign(self) -> bool:
        """Whether this is a forked child: the thread, and what was acquired, stayed with the parent."""
        return os.getpid() != self._pid

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs ``work`` on the loop and waits; interrupted (Ctrl-C), it cancels the work and waits for that. May be
        called from any number of threads at once."""
        self._check_usable(work)
        call = _Call(work)
        self._calls.add(call)
        try:
            self._hand_over(call, call.begin)
            call.wait()
        except BaseException:
            if not call.ended:
                self._hand_over(call, call.drop)
                call.wait(_INTERRUPT_S)
            raise
        finally:
            self._calls.discard(call)
        return call.result()

    def _check_usable(self, work: Coroutine[Any, Any, Any]) -> None:
        problem: Exception | None = None
        if self.foreign:
            problem = ConnectionError("this connection is of the process that forked this one: connect again here")
        elif threading.current_thread() is self._thread:
            problem = RuntimeError("sandmesh.sync was called from its own event loop's thread")
        if problem is not None:
            work.close()
            raise problem

    def _hand_over(self, call: _Call[Any], what: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(what)
        except RuntimeError:
            if not self._loop.is_closed():
                raise
            call.work.close()
            call.end()

    def now(self, make: Callable[[], T]) -> T:
        """Calls ``make`` on the loop: for what is made there without waiting."""

        async def run() -> T:
            return make()

        return self.call(run())

    def each(self, items: AsyncGenerator[T, None]) -> Iterator[T]:
        """An asynchronous generator as one without ``await``."""
        end = object()

        async def following() -> T | object:
            async for item in items:
                return item
            return end

        try:
            while (item := self.call(following())) is not end:
                yield item  # type: ignore[misc]
        finally:
            self.let_go(lambda: _end(items))

    def let_go(self, end: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begins ``end`` on the loop, and waits for nothing: a generator may be found by the garbage collector, on any
        thread, this loop's among them, and with any lock held."""

        def begin() -> None:
            task = asyncio.ensure_future(end())
            self._ending.add(task)
            task.add_done_callback(self._ended)

        if not self.foreign:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and what it held has ended
                self._loop.call_soon_threadsafe(begin)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        if not task.cancelled():
            task.exception()  # nobody's concern; looked at, so that asyncio does not complain

    def leave(self, work: Coroutine[Any, Any, None]) -> None:
        """As ``call``, at the end of a ``with`` block: which in a forked child is none of its business."""
        if self.foreign:
            work.close()
        else:
            self.call(work)

    def close(self) -> None:
        """Calls that are under way elsewhere raise ConnectionError."""
        if self.foreign or self._loop.is_closed():
            return
        with contextlib.suppress(RuntimeError):  # closed meanwhile, by another thread
            self._loop.call_soon_threadsafe(self._loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(_CLOSE_S)

    def _work(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=_CLOSE_S))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()
            # Handed over too late to be begun; whoever comes now finds the loop closed.
            for call in list(self._calls):
                call.end()
