"""What happens in the mesh, as the pool tells it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, get_args

from ._wire.caller import Caller
from ._wire.codec import decode
from ._wire.ids import check_id
from ._wire.schema import check
from ._wire.subjects import event_wildcard, run_event_subject
from .errors import InvalidRequestError

What = Literal["queued", "creating", "granted", "leased", "released", "expired", "lost", "failed", "draining"]
_WHAT: tuple[str, ...] = get_args(What)
# A reader that is this far behind misses the oldest.
_MAX_WAITING = 10_000


@dataclass(frozen=True)
class Event:
    what: What
    at: datetime
    run: str | None = None
    sandbox: str | None = None
    lease: str | None = None
    reason: str | None = None


def _event_of(wire: dict[str, Any]) -> Event:
    # Python 3.10 does not read the Z.
    at = datetime.fromisoformat(wire["at"].replace("Z", "+00:00"))
    return Event(wire["what"], at, *(wire.get(name) for name in ("run", "sandbox", "lease", "reason")))


async def events(
    caller: Caller, run: str | None, sandbox: str | None, what: Collection[What] | None
) -> AsyncGenerator[Event, None]:
    kinds = _kinds(what)
    if sandbox is not None:
        check_id("sandbox", sandbox)
    link, waiting, wake = caller.link, deque[Event](maxlen=_MAX_WAITING), asyncio.Event()

    def take(subject: str, body: bytes) -> None:
        if subject.split(".")[3] == "sbx":  # of a sandbox's own making: anyone inside may say that
            return
        try:
            event = _event_of(check("event.pool", decode(body)))
        except (InvalidRequestError, ValueError):
            return  # a newer pool's
        if event.what in kinds and (run in (None, event.run)) and (sandbox in (None, event.sandbox)):
            waiting.append(event)
            wake.set()

    subjects = [event_wildcard(link.tenant)]
    if run is not None:
        subjects = [run_event_subject(link.tenant, run, each) for each in kinds]
    stops = [link.on_end(wake.set)]
    try:
        for subject in subjects:
            stops.append(await link.subscribe(subject, take))
        while True:
            while waiting:
                yield waiting.popleft()
            link.check_usable()
            wake.clear()
            await wake.wait()
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
