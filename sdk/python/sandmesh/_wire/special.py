"""Writing to and reading from what is neither file nor folder: a fifo, a terminal or a device, whose other end may let
us wait for ever. No thread waits for it, which would keep the process from ending."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import os
import re
import stat
from collections.abc import AsyncGenerator, Iterator

from ..errors import DeadlineError
from .tree import local_errors, shown

# How soon it is tried again: doubled while nothing is taken.
_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.05
# A pipe's usual room.
_PART_BYTES = 65536
# Linux's own limit of links in a row.
_MOST_LINKS = 40


async def write_special(path: bytes, parts: AsyncGenerator[bytes, None]) -> None:
    """A fifo's reader is waited for. Raises OSError: EPIPE where the reader has gone. Closes ``parts``."""
    async with contextlib.aclosing(parts):
        await _write(path, parts)


async def _write(path: bytes, parts: AsyncGenerator[bytes, None]) -> None:
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


def is_by_descriptor(path: bytes) -> bool:
    """Whether a path is a link that leads by a process's descriptor, as /dev/stdin and /dev/fd/N do: as a link it means
    nothing elsewhere."""
    try:
        for _ in range(_MOST_LINKS):
            folder = os.path.realpath(os.path.dirname(path) or b".")
            # Also of one that is closed: that is told, and no link made to it.
            if re.fullmatch(rb"/proc/\d+(/task/\d+)?/fd", folder):
                return True
            if not stat.S_ISLNK(os.lstat(path).st_mode):
                return False
            path = os.path.join(folder, os.readlink(path))
    except OSError:
        # A link that leads nowhere is one as any other.
        pass
    return False


def is_lone_pipe(path: bytes) -> bool:
    """Whether it is a pipe that is known by a descriptor alone, such as /dev/stdout: nobody else can open it."""
    return not os.path.exists(os.path.realpath(path))


async def read_special(path: bytes, is_open: bool, until: float = math.inf) -> AsyncGenerator[bytes, None]:
    """All that comes, to its end. ``is_open``: a writer has opened it already; else a fifo's is waited for. Raises
    FileError, and DeadlineError where the end has not come by ``until``, of the loop's time."""
    with local_errors(path):
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            # Of a fifo nothing comes, too, as long as no writer has opened it; of all else that is the end.
            has_writer = is_open or not stat.S_ISFIFO(os.fstat(file).st_mode)
            pauses = _pauses()
            while True:
                try:
                    part = os.read(file, _PART_BYTES)
                    if part == b"" and has_writer:
                        return
                    has_writer = has_writer or part != b""
                except BlockingIOError:
                    part, has_writer = b"", True
                if part != b"":
                    yield part
                    pauses = _pauses()
                else:
                    await asyncio.sleep(next(pauses))
                if asyncio.get_running_loop().time() > until:
                    raise DeadlineError(f"the end of {shown(path)} did not come in time; does anyone write it?")
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
        if is_lone_pipe(path):  # it gets no other reader
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE), os.fsdecode(path)) from error
        return None


def _pauses() -> Iterator[float]:
    pause = _FIRST_PAUSE_S
    while True:
        yield pause
        pause = min(2 * pause, _LONGEST_PAUSE_S)
