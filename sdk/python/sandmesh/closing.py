"""The end of a connection: all that it holds is given back, as long as there is someone to give it back to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

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


async def give_back_all(
    caller: Caller,
    acquiring: set[asyncio.Task[Any]],
    tenure: Tenure,
    renewer: Renewer,
    release: Callable[..., Awaitable[int]],
) -> None:
    """Raises the first failure when all was tried, naming what is left; where the server has been away for 10 s
    ConnectionError."""
    try:
        failure = await while_present(caller, _give_back(caller, acquiring, renewer, release))
    except ConnectionError as gone:
        failure = gone
    if failure is not None:
        raise _naming(failure, [held.sandbox for held in tenure.held])


async def while_present(caller: Caller, what: Coroutine[Any, Any, T]) -> T:
    """``what``; raises ConnectionError where the server has been away for ``ABSENT_S`` before it is done."""
    await _returning(caller)
    work = asyncio.ensure_future(what)
    try:
        await _watch(caller, work)
        if work.done():
            return work.result()
        servers = ", ".join(caller.link.settings.urls)
        raise ConnectionError(f"no NATS server answers at {servers} for {ABSENT_S:.0f} s")
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


async def _give_back(
    caller: Caller,
    acquiring: set[asyncio.Task[Any]],
    renewer: Renewer,
    release: Callable[..., Awaitable[int]],
) -> SandmeshError | None:
    """Returns the first failure, when all the rest was tried."""
    asked = set(acquiring)
    for task in asked:
        task.cancel()
    if asked:
        await asyncio.wait(asked)
    results = await asyncio.gather(*(release(**order) for order in renewer.orders()), return_exceptions=True)
    await caller.settle(_SETTLE_S)
    for result in results:
        if isinstance(result, SandmeshError):
            return result
        if isinstance(result, BaseException):
            raise result
    return None
