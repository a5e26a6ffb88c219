"""Requests with one answer, to the pool and to a sandbox: encoded, checked, and asked again where that is safe."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from ..errors import (
    DeadlineError,
    PoolUnavailableError,
    SandmeshError,
    UnreachableError,
)
from .arguments import check_arguments
from .codec import encode, parse_answer
from .link import Heed, Link
from .lost import may_be_lost
from .news import News
from .subjects import POOL, pool_subject, sandbox_subject

CALL_TIMEOUT_S = 30.0
"""What a request whose answer normally takes milliseconds may take."""
ABSENT_S = 10.0
"""A daemon or pool that reconnects is back within this, as a rule; longer absences are told."""
AGAIN_S = 5.0
# After a cut an answer that was not lost is here by then, as a rule.
_LATE_S = 5.0

REPEATABLE = frozenset(
    "ping info commands session_open session_close sessions stat list resize cancel abort_transfer write unpack"
    " stdin glob search watch".split()
)
"""Repeating these changes nothing. All others are sent once."""


@dataclass(frozen=True)
class Target:
    """Which sandbox, and under which lease; a handle by id has no fence."""

    sandbox: str
    fence: dict[str, Any]


def nothing() -> None:
    pass


class Caller:
    def __init__(self, link: Link) -> None:
        self.link = link
        self.news = News(link)
        self._background: set[asyncio.Task[None]] = set()
        self._farewell: AsyncGenerator[None, None] | None = None

    async def pool(
        self,
        verb: str,
        request: dict[str, Any],
        *,
        timeout: float = CALL_TIMEOUT_S,
        again_after: float = AGAIN_S,
        absent: float = ABSENT_S,
    ) -> dict[str, Any]:
        """Raises what the pool answers, PoolUnavailableError, DeadlineError, ConnectionError, and InvalidRequestError
        before anything is sent."""
        check_arguments(f"pool.{verb}.request", request)
        subject = pool_subject(self.link.tenant, verb)
        patience = Patience(timeout, again_after, absent)
        try:
            return await self._call(POOL, subject, request, f"pool.{verb}.answer", patience)
        except UnreachableError as error:
            raise PoolUnavailableError("no pool answers at this mesh") from error

    async def sandbox(
        self,
        target: Target,
        verb: str,
        request: dict[str, Any],
        *,
        timeout: float = CALL_TIMEOUT_S,
        again_after: float | None = None,
        once: bool = False,
        absent: float = ABSENT_S,
        heed: Heed | None = None,
        on_absent: Callable[[], object] = nothing,
        on_again: Callable[[], None] = nothing,
    ) -> dict[str, Any]:
        """Raises what the sandbox answers, UnreachableError, DeadlineError, ConnectionError. ``once``: not asked again
        where the answer may have been lost. ``on_again`` is called each time before it is asked again.
        InvalidRequestError is raised before anything is sent."""
        check_arguments(f"sandbox.{verb}.request", request)
        subject = sandbox_subject(self.link.tenant, target.sandbox, verb)
        if verb in REPEATABLE and again_after is None and not once:
            again_after = AGAIN_S
        patience = Patience(timeout, again_after, absent)
        request = {**target.fence, **request}
        answer = f"sandbox.{verb}.answer"
        return await self._call(target.sandbox, subject, request, answer, patience, heed, on_absent, on_again)

    async def _call(
        self,
        responder: str,
        subject: str,
        request: dict[str, Any],
        message: str,
        patience: Patience,
        heed: Heed | None = None,
        on_absent: Callable[[], object] = nothing,
        on_again: Callable[[], None] = nothing,
    ) -> dict[str, Any]:
        body = encode({"version": 1, **request})
        while True:
            self.throw_if_closed()
            try:
                answer = await self.link.request(
                    responder, subject, body, patience.next_try(), heed, patience.after_cut_s
                )
            except SandmeshError as error:
                self.throw_if_closed()
                if isinstance(error, UnreachableError):
                    on_absent()
                try:
                    await patience.judge(error)
                except DeadlineError as last:
                    # The link's own speaks of the last try alone.
                    raise self._overdue(responder, patience) from last
                on_again()
            else:
                return parse_answer(message, answer)

    def _overdue(self, responder: str, patience: Patience) -> DeadlineError:
        message = f"no answer from {responder} within {patience.waited():.1f} s{self.link.absence.words}"
        return DeadlineError(message, sandbox=None if responder == POOL else responder)

    def throw_if_closed(self) -> None:
        """Also where its server is gone."""
        self.link.check_usable()

    def behind(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[None]:
        """Does ``work`` without being waited for, until ``settle``; what it raises is nobody's concern."""

        async def run() -> None:
            try:
                await self._await_farewell()
                await work
            except SandmeshError:
                pass

        task = asyncio.ensure_future(run())
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task

    async def settle(self, timeout: float) -> None:
        """Waits for what goes on behind, and cancels what is left then."""
        if self._background:
            _done, left = await asyncio.wait(set(self._background), timeout=timeout)
            for task in left:
                task.cancel()
            if left:
                await asyncio.wait(left)

    async def _await_farewell(self) -> None:
        """What is cancelled at the loop's end begins things behind, and asyncio, which has cancelled all tasks by then,
        complains of these. It closes what it has of asynchronous generators next: by that they hear of it."""
        if self._farewell is None:
            self._farewell = self._end_with_loop()
            await anext(self._farewell)

    async def _end_with_loop(self) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            # The connection's own tasks are gone: no answer comes any more.
            await self.settle(0)


class Patience:
    """How often and how long one call is tried."""

    def __init__(self, timeout: float, again_after: float | None, absent: float) -> None:
        self._begun = time.monotonic()
        self._deadline = self._begun + timeout
        self._again_after = again_after
        self._absent = absent
        self._absent_since: float | None = None
        self._wait = 0.05

    @property
    def after_cut_s(self) -> float:
        """What may be asked again is asked again as soon as the connection is back."""
        return _LATE_S if self._again_after is None else 0.0

    def next_try(self) -> float:
        left = max(0.001, self._deadline - time.monotonic())
        return left if self._again_after is None else min(left, self._again_after)

    def waited(self) -> float:
        return time.monotonic() - self._begun

    async def judge(self, error: SandmeshError) -> None:
        """Returns when it is time to try again; raises ``error`` where it is not to be tried again."""
        absent = isinstance(error, UnreachableError)
        if not absent and not (may_be_lost(error) and self._again_after is not None):
            raise error
        now = time.monotonic()
        if absent:
            self._absent_since = self._absent_since or now
            if now - self._absent_since >= self._absent:
                raise error
        else:
            self._absent_since = None
        if now + self._wait >= self._deadline:
            raise error
        if not isinstance(error, DeadlineError):
            await asyncio.sleep(self._wait * random.uniform(0.5, 1.5))
            self._wait = min(self._wait * 2, 1.0)
