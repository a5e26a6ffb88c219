"""Who waits for a sandbox that says nothing asks now and then whether it is there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from .box import Box

# Nothing heard for this long: the next word of the pool's is heard too.
_LISTEN_S = 1.0
# Nothing heard for this long: the first look; it is there: look again after this long; it is not: soon.
_FIRST_QUIET_S = 5.0
_QUIET_S = 15.0
_AWAY_QUIET_S = 1.0


class Silence:
    """One that waits on the pulse, from its making to its ``end``. ``on_back`` is called when the sandbox was cut off
    and is back: what it published meanwhile may be lost."""

    def __init__(self, box: Box, on_back: Callable[[], None] = lambda: None) -> None:
        self._box = box
        self._on_back = on_back
        self._away = False
        self._ended = False
        self._begun = time.monotonic()
        box.waiting_begins()
        self._look_at = 0.0
        self.heard()

    def heard(self) -> None:
        self._look_at = time.monotonic() + _FIRST_QUIET_S

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._box.waiting_ends()

    def on_reconnect(self) -> None:
        pass

    def on_tick(self, now: float) -> None:
        if now - self._begun >= _LISTEN_S:
            self._box.listen()
        if now >= self._look_at:
            self._look_at = now + _QUIET_S
            self._box.caller.behind(self._look())

    async def _look(self) -> None:
        found = await self._box.inquire()
        if found == "here" and self._away:
            self._on_back()
        self._away = found == "away"
        if self._away:
            self._look_at = time.monotonic() + _AWAY_QUIET_S
