"""Which sandboxes of a run are lost, by its events, and after an absence of the connection by asking the pool once."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..errors import SandmeshError
from .caller import Caller
from .event_hub import Listener
from .news import loss_of

# Many trainers that lost the same server are back, and ask, in about the same moment.
_LOOK_WITHIN_S = 1.0
# Where the server refuses to tell of them, it is asked anew, and the pool what is still there, after this.
_AGAIN_S = 5.0

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


class _Hearing:
    def __init__(
        self, caller: Caller, run: str, tell: Callable[[str, str], None], waiting: Mapping[str, object]
    ) -> None:
        self._caller = caller
        self._run = run
        self._tell = tell
        self._waiting = waiting
        self._soon: asyncio.TimerHandle | None = None
        self._again: asyncio.TimerHandle | None = None
        self._unhear = self._hear()
        self._unheed = caller.link.on_reconnect(self._look_soon)

    def _hear(self) -> Callable[[], None]:
        return self._caller.news.losses.hear(self._run, Listener(self._told, self._refused))

    def _told(self, event: dict[str, Any]) -> None:
        if event.get("sandbox") is not None:
            self._tell(event["sandbox"], event.get("reason", event["what"]))

    def _refused(self, _error: SandmeshError) -> None:
        self._again = self._caller.link.loop.call_later(_AGAIN_S, self._retry)

    def _retry(self) -> None:
        try:
            self._unhear = self._hear()
        except SandmeshError:
            return  # closed meanwhile
        self._look_soon()

    def _look_soon(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
        self._soon = self._caller.link.loop.call_later(random.uniform(0, _LOOK_WITHIN_S), self._look)

    def _look(self) -> None:
        if self._waiting and self._caller.link.closed_error is None:
            self._caller.behind(self._ask_pool())

    async def _ask_pool(self) -> None:
        # What comes to be waited for meanwhile may be missing from what the pool had said by then.
        for sandbox, reason in (await ended_of(self._caller, self._run, list(self._waiting))).items():
            # Not so any more where it was released, detached or told of as lost meanwhile.
            if sandbox in self._waiting:
                self._tell(sandbox, reason)

    def stop(self) -> None:
        for timer in (self._soon, self._again):
            if timer is not None:
                timer.cancel()
        self._unheed()
        self._unhear()


def hear_losses(
    caller: Caller, run: str, tell: Callable[[str, str], None], waiting: Mapping[str, object]
) -> Callable[[], None]:
    """Calls ``tell`` with each sandbox of the run that ends, and why. Where that may not have been heard (the
    connection was lost and is back; or the server refuses to tell so, then every 5 s) the pool is asked, within a
    second, which of those that ``waiting`` has by then are not there any more. Returns what ends it. Raises
    ConnectionError (closed)."""
    return _Hearing(caller, run, tell, waiting).stop


class _Heard:
    """A run."""

    def __init__(self, caller: Caller, run: str) -> None:
        self.tells: dict[str, set[Tell]] = {}
        # Why those ended that did since it is heard: the word of it may come before who asked for it knows its run.
        self.ended: dict[str, str] = {}
        self.since = time.monotonic()
        self.unhear = hear_losses(caller, run, self._happened, self.tells)

    def _happened(self, sandbox: str, reason: str) -> None:
        self.ended[sandbox] = reason
        for tell in list(self.tells.get(sandbox, ())):
            tell(reason)


class Losses:
    """What becomes of sandboxes that are held by their id alone: of each run it is heard once, whoever waits for how
    many of it."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._runs: dict[str, _Heard] = {}

    def follow(self, run: str, sandbox: str, asked_at: float, tell: Tell) -> tuple[bool, Callable[[], None]]:
        """Calls ``tell`` when the sandbox ends, and returns what takes that back. ``asked_at``: when the pool was
        asked, by ``time.monotonic``, that said it was there. True: that was before the run was heard, so that it may
        have ended between the two."""
        heard = self._runs.get(run)
        if heard is None:
            heard = self._runs[run] = _Heard(self._caller, run)
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
