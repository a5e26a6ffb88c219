"""The end of a connection: all that it holds is given back, as long as there is someone to give it back to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from ._wire.box import Pulse
from ._wire.caller import Caller
from ._wire.renewal import Renewer
from ._wire.tenure import Tenure
from .errors import ConnectionError, SandmeshError

T = TypeVar("T")
# A server that comes back is back within this, as a rule.
ABSENT_S = 10.0
_LOOK_S = 1.0
# Of what goes on behind: acquires that are taken back, commands that are ended.
_SETTLE_S = 10.0
_NAMED = 20


class Closing:
    """Of one connection. ``release`` is its mesh's."""

    def __init__(
        self, caller: Caller, pulse: Pulse, tenure: Tenure, renewer: Renewer, release: Callable[..., Awaitable[int]]
    ) -> None:
        self._caller = caller
        self._pulse = pulse
        self._tenure = tenure
        self._renewer = renewer
        self._release = release
        self._acquiring: set[asyncio.Task[Any]] = set()
        self._work: asyncio.Task[None] | None = None
        self._loop_ends = False

    @property
    def begun(self) -> bool:
        return self._work is not None

    def throw_if_begun(self) -> None:
        if self.begun:
            raise ConnectionError("the connection to the mesh is closed")
        self._caller.throw_if_closed()

    async def acquire(self, work: Coroutine[Any, Any, T]) -> T:
        """``work``, which closing takes back, and waits for; raises ConnectionError then."""
        asking = asyncio.ensure_future(work)
        self._acquiring.add(asking)
        asking.add_done_callback(self._acquiring.discard)
        try:
            return await asking
        except asyncio.CancelledError:
            if asking.cancelled() and self.begun and not self._loop_ends:
                self.throw_if_begun()
            raise

    async def close(self) -> None:
        """Begins it, or joins what has begun."""
        self.check_home()
        if self._work is None:
            self._work = asyncio.ensure_future(self._close())
        # A cancelled caller does not leave sandboxes behind half-way.
        await asyncio.shield(self._work)

    def check_home(self) -> None:
        """Of a close that came to its end the result can be had anywhere."""
        if self._work is None or not self._work.done() or self._work.cancelled():
            self._caller.link.home.check()

    def left_by(self, error: BaseException | None) -> None:
        """Of a block: where the loop ends by that, what waits in other tasks is cancelled, as asyncio does at that:
        nobody is left who would look at an error of theirs."""
        if isinstance(error, SystemExit | KeyboardInterrupt):
            self._loop_ends = True
            self._caller.link.asked.cancel()

    async def _close(self) -> None:
        try:
            if self._caller.link.home.ending:
                self._renewer.rest(tried=False)
            else:
                await self._give_back_all()
                self._renewer.stop()
        except BaseException as error:
            # Cancelled, as at the end of asyncio.run, it has hardly begun.
            self._renewer.rest(tried=isinstance(error, SandmeshError))
            raise
        finally:
            self._pulse.close()
            await self._caller.link.close()
        if self._renewer.stopping:
            await asyncio.to_thread(self._renewer.join, 2.0)

    async def _give_back_all(self) -> None:
        """Raises the first failure when all was tried, naming what is left; where the server has been away for 10 s
        ConnectionError."""
        try:
            failure = await while_present(self._caller, self._give_back())
        except ConnectionError as gone:
            failure = gone
        if failure is not None:
            raise _naming(failure, [held.sandbox for held in self._tenure.held])

    async def _give_back(self) -> SandmeshError | None:
        """Returns the first failure, when all the rest was tried."""
        asked = set(self._acquiring)
        for task in asked:
            task.cancel()
        if asked:
            await asyncio.wait(asked)
        releases = (self._release(**order) for order in self._renewer.orders())
        results = await asyncio.gather(*releases, return_exceptions=True)
        await self._caller.settle(_SETTLE_S)
        for result in results:
            if isinstance(result, SandmeshError):
                return result
            if isinstance(result, BaseException):
                raise result
        return None


async def while_present(caller: Caller, what: Coroutine[Any, Any, T]) -> T:
    """``what``; raises ConnectionError where the server has been away for ``ABSENT_S`` before it is done."""
    await _returning(caller)
    work = asyncio.ensure_future(what)
    try:
        await _watch(caller, work)
        if work.done():
            return work.result()
        raise ConnectionError(f"no NATS server answers at {caller.link.settings.servers} for {ABSENT_S:.0f} s")
    finally:
        work.cancel()
        await asyncio.wait({work})


async def _returning(caller: Caller) -> None:
    """A server that counts as gone may just be coming back."""
    looks = 0
    while caller.link.absence.error is not None and looks < 30:
        await asyncio.sleep(_LOOK_S / 10)
        looks += 1


async def _watch(caller: Caller, work: asyncio.Task[Any]) -> None:
    """Returns when ``work`` is done, or the server has not answered for ``ABSENT_S``."""
    loop = asyncio.get_running_loop()
    absent = 0.0
    while absent < ABSENT_S:
        asked_at = loop.time()
        await asyncio.wait({work}, timeout=_LOOK_S)
        if work.done():
            return
        there = await caller.link.answers(_LOOK_S)
        # Not the clock alone: a loop that was blocked has not looked for all that time.
        absent = 0.0 if there else absent + min(loop.time() - asked_at, 2.5 * _LOOK_S)


def _naming(failure: SandmeshError, left: list[str]) -> SandmeshError:
    if not left:
        return failure
    more = f" and {len(left) - _NAMED} more" if len(left) > _NAMED else ""
    names = ", ".join(left[:_NAMED]) + more
    message = f"{len(left)} sandboxes could not be released and end when their lease lapses: {names}: {failure.message}"
    named = type(failure)(message, sandbox=left[0], reason=failure.reason)
    named.__cause__ = failure
    return named
