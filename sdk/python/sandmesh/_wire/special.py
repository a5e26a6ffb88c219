"""Writing to what is neither file nor folder: a fifo, a terminal or a device, whose reader may let us wait for ever. No
thread waits for it, which would keep the process from ending."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import AsyncIterator, Iterator

# How soon it is tried again: doubled while nothing is taken.
_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.05


async def write_special(path: bytes, parts: AsyncIterator[bytes]) -> None:
    """A fifo's reader is waited for. Raises OSError: EPIPE where the reader has gone."""
    file = await _open(path)
    try:
        async for part in parts:
            rest = memoryview(part)
            pauses = _pauses()
            while rest:
                try:
                    rest = rest[os.write(file, rest) :]
                    pauses = _pauses()
                except BlockingIOError:
                    await asyncio.sleep(next(pauses))
    finally:
        os.close(file)


async def _open(path: bytes) -> int:
    pauses = _pauses()
    while (file := _opened(path)) is None:
        await asyncio.sleep(next(pauses))
    return file


def _opened(path: bytes) -> int | None:
    """None where it is a fifo without a reader."""
    try:
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        # fifo(7); of all else it is for good.
        if error.errno != errno.ENXIO or not stat.S_ISFIFO(os.stat(path).st_mode):
            raise
        # A pipe that is known by a descriptor alone, such as /dev/stdout, gets no other reader.
        if not os.path.exists(os.path.realpath(path)):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE), os.fsdecode(path)) from error
        return None


def _pauses() -> Iterator[float]:
    pause = _FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE_S)
