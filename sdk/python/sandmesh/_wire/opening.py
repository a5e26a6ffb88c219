"""What both ``await opening`` and ``async with opening`` take, and how such a block ends."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from ..errors import SandmeshError

log = logging.getLogger("sandmesh")


class _Closable(Protocol):
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None: ...


T = TypeVar("T", bound=_Closable)


class Opening(Coroutine[Any, Any, T], Generic[T]):
    """A coroutine, so that ``asyncio.create_task`` and task groups take it too."""

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *args: Any) -> Any:
        return self._coroutine.throw(*args)

    def close(self) -> None:
        self._coroutine.close()

    async def __aenter__(self) -> T:
        self._opened = await self._coroutine
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened.__aexit__(kind, error, trace)


async def leave_block(what: str, ending: Awaitable[object], error: BaseException | None) -> None:
    """Awaits ``ending`` at the end of a block. Where the block raised ``error``, that says more than what ``ending``
    raises, which is logged then: the lease lapses, since it is not renewed any more."""
    try:
        await ending
    except SandmeshError as failure:
        if error is None:
            raise
        if failure.reason != "closed":  # with the connection itself, whose end is told where it is left
            log.warning("%s: %s", what, failure)
