"""What the pool tells of the sandboxes of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ..errors import SandmeshError
from .event_hub import EventHub, Listener
from .link import Link
from .subjects import event_wildcard, run_event_subject, run_event_wildcard

_LOSSES = ("lost", "expired", "released", "failed")
_ENDED = ("releasing", "gone", "lost", "failed")
# Where the server refuses to tell of them, it is asked anew, and the pool what is still there, after this.
_AGAIN_S = 5.0


def loss_of(view: dict[str, Any]) -> str | None:
    """Why a sandbox that the pool lists is not there any more; None while it is."""
    return str(view.get("reason", view["state"])) if view["state"] in _ENDED else None


class News:
    """One for each connection."""

    def __init__(self, link: Link) -> None:
        tenant = link.tenant
        self.loop = link.loop

        def losses(run: str | None) -> list[str]:
            if run is None:
                return [run_event_wildcard(tenant, "*", what) for what in _LOSSES]
            return [run_event_subject(tenant, run, what) for what in _LOSSES]

        def events(run: str | None) -> list[str]:
            return [event_wildcard(tenant) if run is None else run_event_wildcard(tenant, run, "*")]

        self.losses = EventHub(link, losses)
        self.events = EventHub(link, events)


class _Losses:
    def __init__(self, news: News, run: str, tell: Callable[[str, str], None], look: Callable[[], None]) -> None:
        self._news = news
        self._run = run
        self._tell = tell
        self._look = look
        self._again: asyncio.TimerHandle | None = None
        self._unhear = self._hear()

    def _hear(self) -> Callable[[], None]:
        return self._news.losses.hear(self._run, Listener(self._told, self._refused))

    def _told(self, event: dict[str, Any]) -> None:
        if event.get("sandbox") is not None:
            self._tell(event["sandbox"], event.get("reason", event["what"]))

    def _refused(self, _error: SandmeshError) -> None:
        self._again = self._news.loop.call_later(_AGAIN_S, self._retry)

    def _retry(self) -> None:
        try:
            self._unhear = self._hear()
        except SandmeshError:
            return  # closed meanwhile
        self._look()

    def stop(self) -> None:
        if self._again is not None:
            self._again.cancel()
        self._unhear()


def hear_losses(news: News, run: str, tell: Callable[[str, str], None], look: Callable[[], None]) -> Callable[[], None]:
    """Calls ``tell`` with each sandbox of the run that ends, and why; ``look``, where the server refuses to tell so,
    every 5 s: then they are to be asked for. Returns what ends it. Raises ConnectionError (closed)."""
    return _Losses(news, run, tell, look).stop
