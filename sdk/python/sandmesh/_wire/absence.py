"""For how long the server has been away, and from when on it counts as gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..errors import ConnectionError

GONE_S = 60.0
"""A server that restarts, or fails over, is back well within this; who waits longer waits for one that is gone. It is
for all that is asked and all that waits, of whatever kind, and the one limit of what has no deadline of its own."""
_TICK_S = 0.5


class Absence:
    """Counted by ticks, not by the clock: a loop that was blocked has not tried to connect all that time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_gone: Callable[[], None]) -> None:
        self._loop = loop
        self._on_gone = on_gone
        self._timer: asyncio.TimerHandle | None = None
        self.away_s = 0.0
        """0 while it is there."""

    @property
    def error(self) -> ConnectionError | None:
        """What requests fail with once it is gone; None before."""
        if self.away_s < GONE_S:
            return None
        return ConnectionError(f"the server has been away for {self.away_s:.0f} s", reason="server_gone")

    @property
    def words(self) -> str:
        """For a message."""
        return f"; the server has been away for {self.away_s:.1f} s" if self.away_s else ""

    def begin(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(_TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(_TICK_S, self._tick)
        before = self.away_s
        self.away_s += _TICK_S
        if before < GONE_S <= self.away_s:
            self._on_gone()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self.away_s = None, 0.0
