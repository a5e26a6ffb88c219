"""Many sandboxes at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from .errors import InvalidRequestError
from .sandboxes import Sandbox


async def acquire_many(
    one: Callable[[], Awaitable[Sandbox]], count: int, at_least: int | None, at_once: int
) -> list[Sandbox]:
    _check("count", count, 0)
    _check("at_once", at_once, 1)
    if at_least is not None:
        _check("at_least", at_least, 0, count)
    gate = asyncio.Semaphore(at_once)

    async def each() -> Sandbox:
        async with gate:
            return await one()

    tasks = [asyncio.ensure_future(each()) for _ in range(count)]
    enough = False
    try:
        if tasks:
            await asyncio.wait(tasks)
        got = [task.result() for task in tasks if not task.cancelled() and task.exception() is None]
        enough = len(got) >= (count if at_least is None else at_least)
        if enough:
            return got
    finally:
        if not enough:
            await _undo(tasks)
    raise next(error for task in tasks if (error := task.exception()))


async def _undo(tasks: list[asyncio.Task[Sandbox]]) -> None:
    for task in tasks:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    boxes = [result for result in results if isinstance(result, Sandbox)]
    await asyncio.gather(*(box.release() for box in boxes), return_exceptions=True)


def _check(field: str, value: object, least: int, most: int = 10**6) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise InvalidRequestError(f"{field}: must be a number from {least} to {most}", field=field)
