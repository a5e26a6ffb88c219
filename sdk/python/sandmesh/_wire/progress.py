"""How far a command's output has come."""

from __future__ import annotations

from typing import Any

STREAMS = ("stdout", "stderr")
Frame = dict[str, Any]


class Progress:
    """How far each stream has come: what was received, and whether it fits."""

    def __init__(self, gaps_are_loss: bool, start: dict[str, int]) -> None:
        """With ``keep="tail"`` what is left out stands before what is sent, so a gap is no loss."""
        self._gaps_are_loss = gaps_are_loss
        self._start = {name: start.get(name, 0) for name in STREAMS}
        self.next = dict(self._start)
        self.got = dict.fromkeys(STREAMS, 0)

    def take(self, stream: str, offset: int, data: bytes) -> bytes | None:
        """The new bytes of a chunk; None where bytes before it were lost on the way."""
        known = self.next[stream] - offset
        if known < 0 and self._gaps_are_loss:
            return None
        fresh = data[known:] if known > 0 else data
        if fresh:
            self.next[stream] = max(self.next[stream], offset + len(data))
            self.got[stream] += len(fresh)
        return fresh

    def complete(self, end: Frame) -> bool:
        """Whether, with the end frame's own output, all is there that the totals speak of."""
        for stream in STREAMS:
            totals = end["totals"][stream]
            start = self._start[stream] if self._gaps_are_loss else 0
            kept = totals["total_bytes"] - totals["dropped_bytes"] - start
            if self.got[stream] + len(end.get(stream, b"")) < kept:
                return False
        return True
