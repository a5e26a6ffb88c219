"""What happens in the mesh, as the pool tells it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Literal, get_args

from ._wire.caller import Caller
from ._wire.event_hub import Listener
from ._wire.ids import check_id
from .errors import InvalidRequestError, SandmeshError

What = Literal["queued", "creating", "granted", "leased", "released", "expired", "lost", "failed", "draining"]
_WHAT: tuple[str, ...] = get_args(What)
_MAX_WAITING = 10_000


@dataclass(frozen=True)
class Event:
    what: What | Literal["missed"]
    """``missed``, which is this connection's own word: the pool may have told more, of whatever, that did not arrive:
    the connection was lost, and is back, or the reader was too far behind. What there is now ``list()`` tells."""
    at: datetime
    run: str | None = None
    sandbox: str | None = None
    lease: str | None = None
    reason: str | None = None


def _event_of(wire: dict[str, Any]) -> Event:
    # Python 3.10 does not read the Z.
    at = datetime.fromisoformat(wire["at"].replace("Z", "+00:00"))
    return Event(wire["what"], at, *(wire.get(name) for name in ("run", "sandbox", "lease", "reason")))


def _missed() -> Event:
    return Event("missed", datetime.now(timezone.utc))


class _Waiting:
    """What has come and was not read yet."""

    def __init__(self) -> None:
        self.events = deque[Event]()
        self.refusal: SandmeshError | None = None
        self.wake = asyncio.Event()

    def add(self, event: Event) -> None:
        if len(self.events) == _MAX_WAITING:
            # Not one at a time: a reader that stays behind would be told to look again before each event.
            for _ in range(_MAX_WAITING // 2):
                self.events.popleft()
            self.events.appendleft(_missed())
        self.events.append(event)
        self.wake.set()

    def refused(self, error: SandmeshError) -> None:
        self.refusal = error
        self.wake.set()

    def reconnected(self) -> None:
        # Behind what came before. Who has not read of the last time yet need not look twice.
        if not self.events or self.events[-1].what != "missed":
            self.add(_missed())


def events(
    caller: Caller, run: str | None, sandbox: str | None, what: Collection[What] | None
) -> AsyncGenerator[Event, None]:
    """Raises InvalidRequestError at once: no event would ever be another name's."""
    kinds = _kinds(what)
    if run is not None:
        check_id("run", run)
    if sandbox is not None:
        check_id("sandbox", sandbox)
    return _events(caller, run, sandbox, kinds)


async def _events(
    caller: Caller, run: str | None, sandbox: str | None, kinds: tuple[str, ...]
) -> AsyncGenerator[Event, None]:
    link, waiting = caller.link, _Waiting()

    def tell(wire: dict[str, Any]) -> None:
        try:
            event = _event_of(wire)
        except ValueError:
            return  # a newer pool's
        if event.what in kinds and (run in (None, event.run)) and (sandbox in (None, event.sandbox)):
            waiting.add(event)

    stops = [link.on_end(waiting.wake.set), link.on_reconnect(waiting.reconnected)]
    try:
        stops.append(caller.news.events.hear(run, Listener(tell, waiting.refused)))
        while True:
            while waiting.events:
                yield waiting.events.popleft()
            if waiting.refusal is not None:
                raise waiting.refusal
            link.check_usable()
            waiting.wake.clear()
            await waiting.wake.wait()
    finally:
        for stop in stops:
            stop()


def _kinds(what: object) -> tuple[str, ...]:
    if what is None:
        return _WHAT
    kinds = (what,) if isinstance(what, str) else tuple(what) if isinstance(what, Collection) else (None,)
    if not kinds or not all(isinstance(each, str) and each in _WHAT for each in kinds):
        raise InvalidRequestError(f"what: must be some of {', '.join(_WHAT)}", field="what")
    return tuple(str(each) for each in kinds)
