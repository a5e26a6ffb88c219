"""Where a connection belongs: the process and the event loop it was made in, and whether that loop is at its end."""

from __future__ import annotations

import asyncio
import os

from ..errors import ConnectionError


class Home:
    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._standing: asyncio.Future[None] = self.loop.create_future()
        self._stand = self.loop.create_task(self._stand_by())

    async def _stand_by(self) -> None:
        # Who cancels this task cancels what it waits for, at once.
        await self._standing

    def leave(self) -> None:
        """Of a connection that closes: how the loop fares is no matter to it any more."""
        if not self._standing.done():
            self._standing.set_result(None)

    @property
    def foreign(self) -> bool:
        """Whether this is a forked child: the connection, and what was acquired, are the parent's."""
        return self._pid != os.getpid()

    @property
    def ending(self) -> bool:
        """Whether the loop is being ended, as by a signal's handler that raises: asyncio has cancelled all tasks, also
        those that read and write for this connection, so that no answer comes any more."""
        return self._standing.cancelled()

    def check(self) -> None:
        """Raises ConnectionError elsewhere than here."""
        if self.foreign:
            raise ConnectionError("this connection is of the process that forked this one: connect again here")
        if asyncio.get_running_loop() is not self.loop:
            raise ConnectionError("this connection belongs to another event loop: use it, and close it, in that one")
