"""How far a sandbox may send ahead of who reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .schema import limit

if TYPE_CHECKING:
    from .box import Box

# Of all streams of a connection together: the server drops one that it cannot write 64 MB to. (Each keeps what it has;
# those that come later get less.)
_ALL_BYTES = 32 * 1024 * 1024
_LEAST_BYTES = 256 * 1024


def credit_of(streams: int) -> int:
    """Bytes for one of ``streams``."""
    share = _ALL_BYTES // max(1, streams)
    return min(limit("default_credit_bytes"), max(_LEAST_BYTES, share))


class Credit:
    """Of one question, by its ``token``, which has been sent with the first credit."""

    def __init__(self, box: Box, token: str, received: Mapping[str, int]) -> None:
        """``received``: of each stream, before it."""
        self._box = box
        self._token = token
        self._ahead = credit_of(len(box.caller.link.asked.streams))
        self._acknowledged = dict(received)

    async def received(self, stream: str, received: int, *, base: int = 0, now: bool = False) -> None:
        """Lets the sandbox send on, counted from ``base``: half of the first credit at a time, or ``now``."""
        if received - self._acknowledged[stream] < limit("first_credit_bytes") // 2 and not now:
            return
        self._acknowledged[stream] = received
        until = base + received + self._ahead
        await self._box.give_credit(self._token, stream, base + received, until)
