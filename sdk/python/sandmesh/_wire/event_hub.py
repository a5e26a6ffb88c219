"""Who on one connection hears of which run. A connection may have 64 subscriptions (broker/server/permissions.ts), and
may be told of any number of runs: few have subscriptions of their own, the others share one for the whole tenant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidRequestError, SandmeshError
from .codec import decode
from .link import Link
from .schema import check

MAX_NARROW = 8
"""Runs with subscriptions of their own. With four subjects each for losses, one for events, the same once more for the
whole tenant, and the answers' one, a connection has at most 8 * 4 + 4 + 8 * 1 + 1 + 1 = 46."""


@dataclass(frozen=True, eq=False)
class Listener:
    tell: Callable[[dict[str, Any]], None]
    """Is given events as the pool sent them."""
    refused: Callable[[SandmeshError], None]
    """The server refuses the subscription: this one is told nothing any more."""


class _Feed:
    """Subscriptions that end with the last one that listens to them."""

    def __init__(self, link: Link, subjects: Sequence[str], ended: Callable[[], None]) -> None:
        # By run; None: of them all, and of what is of none. The listeners in order.
        self._listeners: dict[str | None, dict[Listener, None]] = {}
        self._ended = ended
        self._stops = [link.subscribe(subject, self._take, self._refused) for subject in subjects]

    def has(self, run: str | None) -> bool:
        return run in self._listeners

    def add(self, run: str | None, listener: Listener) -> Callable[[], None]:
        of_run = self._listeners.setdefault(run, {})
        of_run[listener] = None

        def leave() -> None:
            of_run.pop(listener, None)
            if not of_run and self._listeners.get(run) is of_run:
                del self._listeners[run]
                if not self._listeners:
                    self._end()

        return leave

    def _take(self, subject: str, body: bytes) -> None:
        scope, *of = subject.split(".")[3:]
        if scope == "sbx":  # of a sandbox's own making: anyone inside may say that
            return
        of_run = self._listeners.get(of[0], {}) if scope == "run" and of else {}
        told = [*of_run, *self._listeners.get(None, {})]
        if not told:
            return
        try:
            event = check("event.pool", decode(body))
        except InvalidRequestError:
            return  # of a newer pool: what it is about is found out by asking
        for listener in told:
            listener.tell(event)

    def _refused(self, error: SandmeshError) -> None:
        told = [listener for of_run in self._listeners.values() for listener in of_run]
        self._listeners.clear()
        self._end()
        for listener in told:
            listener.refused(error)

    def _end(self) -> None:
        for stop in self._stops:
            stop()
        self._ended()


class EventHub:
    def __init__(self, link: Link, subjects: Callable[[str | None], Sequence[str]]) -> None:
        """``subjects``: what is subscribed for a run, or for the whole tenant."""
        self._link = link
        self._subjects = subjects
        self._narrow: dict[str, _Feed] = {}
        self._wide: _Feed | None = None

    def hear(self, run: str | None, listener: Listener) -> Callable[[], None]:
        """Tells ``listener`` what happens from now on, each event once; subscribed in front of all that is asked later.
        None: of all runs. Returns what ends it. Raises ConnectionError (closed)."""
        return self._feed_of(run).add(run, listener)

    def _feed_of(self, run: str | None) -> _Feed:
        """Whoever hears of a run hears of it by the same feed, so that nothing is told twice, and nothing is left out
        while one changes from one feed to another: none does."""
        if run is not None and run in self._narrow:
            return self._narrow[run]
        shares = self._wide is not None and self._wide.has(run)
        if run is None or shares or len(self._narrow) >= MAX_NARROW:
            if self._wide is None:
                self._wide = _Feed(self._link, self._subjects(None), self._widely_ended)
            return self._wide
        feed = self._narrow[run] = _Feed(self._link, self._subjects(run), lambda: self._narrowly_ended(run))
        return feed

    def _widely_ended(self) -> None:
        self._wide = None

    def _narrowly_ended(self, run: str) -> None:
        del self._narrow[run]
