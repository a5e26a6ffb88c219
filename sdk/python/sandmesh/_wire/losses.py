"""What becomes of sandboxes that are held by their id alone: of each run its events are heard once, whoever waits for
how many of it, and after an absence of the connection the pool is asked once."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable

from .caller import Caller
from .news import hear_losses, loss_of

# Many trainers that lost the same server are back, and ask, in about the same moment.
LOOK_WITHIN_S = 1.0

Tell = Callable[[str], None]


async def ended_of(caller: Caller, run: str, sandboxes: Iterable[str]) -> dict[str, str]:
    """Those of ``sandboxes``, all of that run, that are not there any more, and why. Raises as ``Caller.pool``."""
    listed: dict[str, str | None] = {}
    request = {"run": run}
    while True:
        page = await caller.pool("list", request)
        listed.update((view["sandbox"], loss_of(view)) for view in page["sandboxes"])
        if page.get("next") is None:
            break
        request["after"] = page["next"]
    reasons = ((sandbox, listed.get(sandbox, "gone")) for sandbox in sandboxes)
    return {sandbox: reason for sandbox, reason in reasons if reason is not None}


class _Heard:
    """A run."""

    def __init__(self, caller: Caller, run: str, look: Callable[[], None]) -> None:
        self.tells: dict[str, set[Tell]] = {}
        # Why those ended that did since it is heard: the word of it may come before who asked for it knows its run.
        self.ended: dict[str, str] = {}
        self.since = time.monotonic()
        self.unhear = hear_losses(caller.news, run, self._happened, look)

    def _happened(self, sandbox: str, reason: str) -> None:
        self.ended[sandbox] = reason
        self.tell(sandbox, reason)

    def tell(self, sandbox: str, reason: str) -> None:
        for tell in list(self.tells.get(sandbox, ())):
            tell(reason)


class Losses:
    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._runs: dict[str, _Heard] = {}
        self._look: asyncio.TimerHandle | None = None
        caller.link.on_reconnect(self._returned)

    def follow(self, run: str, sandbox: str, asked_at: float, tell: Tell) -> tuple[bool, Callable[[], None]]:
        """Calls ``tell`` when the sandbox ends, and returns what takes that back. ``asked_at``: when the pool was
        asked, by ``time.monotonic``, that said it was there. True: that was before the run was heard, so that it may
        have ended between the two."""
        heard = self._runs.get(run)
        if heard is None:
            heard = self._runs[run] = _Heard(self._caller, run, self._returned)
        heard.tells.setdefault(sandbox, set()).add(tell)

        def stop() -> None:
            self._stop(run, heard, sandbox, tell)

        if sandbox in heard.ended:
            tell(heard.ended[sandbox])
        return asked_at <= heard.since, stop

    def _stop(self, run: str, heard: _Heard, sandbox: str, tell: Tell) -> None:
        tells = heard.tells.get(sandbox, set())
        tells.discard(tell)
        if not tells:
            heard.tells.pop(sandbox, None)
        if not heard.tells and self._runs.get(run) is heard:
            del self._runs[run]
            heard.unhear()

    def _returned(self) -> None:
        if self._look is not None:
            self._look.cancel()
        self._look = self._caller.link.loop.call_later(random.uniform(0, LOOK_WITHIN_S), self._look_at_all)

    def _look_at_all(self) -> None:
        self._look = None
        for run, heard in self._runs.items():
            if self._caller.link.closed_error is None:
                self._caller.behind(self._look_at(run, heard))

    async def _look_at(self, run: str, heard: _Heard) -> None:
        for sandbox, reason in (await ended_of(self._caller, run, list(heard.tells))).items():
            heard.tell(sandbox, reason)
