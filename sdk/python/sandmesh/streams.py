"""A command's output while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from types import AsyncGeneratorType, TracebackType
from typing import TYPE_CHECKING, cast

from . import commands
from ._wire.arguments import check_arguments
from ._wire.box import Box
from ._wire.follow import Follower
from .errors import CanceledError, SandmeshError
from .results import Chunk, Chunker, CommandEnd, end_of
from .stdin import StdinWriter

if TYPE_CHECKING:
    from typing_extensions import Unpack


class CommandStream:
    """A command's output while it runs: ``async for chunk in stream``, then ``await stream.wait()``. Reading slowly
    slows the command down (its pipe is full), and never fills memory. Leaving the loop, or the ``async with`` block,
    before the end cancels the command, where this stream started it."""

    def __init__(
        self,
        box: Box,
        command_id: str,
        follower: Follower,
        owns: bool,
        on_output_end: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_output_end`` is called behind the last part of stdout where the command goes on without it, as a
        connection whose other side has closed; perhaps more than once."""
        self.id = command_id
        self._on_output_end = on_output_end
        self._box = box
        self._owns = owns
        self._follower = follower
        self._end: CommandEnd | None = None
        self._left = False
        self._begun = follower.begin()
        self._chunks = cast("AsyncGeneratorType[Chunk, None]", self._iterate(follower))
        self._feeding: asyncio.Task[None] | None = None
        self._stdin = StdinWriter(box, command_id, self._begun)

    @property
    def end(self) -> CommandEnd | None:
        """How the command ended; None until the stream has been read to its end."""
        return self._end

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self._chunks

    async def wait(self) -> CommandEnd:
        """Reads what is left and throws it away; returns how the command ended."""
        async for _chunk in self._chunks:
            pass
        if self._end is None:
            raise CanceledError("the stream was left before its end", sandbox=self._box.id, started="yes")
        return self._end

    async def _iterate(self, follower: Follower) -> AsyncGenerator[Chunk, None]:
        chunker = Chunker()
        frames = follower.frames()
        try:
            async for frame in frames:
                if frame["type"] == "chunk":
                    if frame["data"]:
                        yield chunker.of(frame["stream"], frame["data"], frame["offset"])
                    if frame.get("eof") and frame["stream"] == "stdout":
                        self._on_output_end()
                elif frame["type"] == "end":
                    self._end = end_of(frame, self._box.id)
                    for name in ("stdout", "stderr"):
                        if frame.get(name):
                            yield chunker.of(name, frame[name])
        except SandmeshError:
            self._left = True
            raise
        finally:
            await frames.aclose()
            self._leave()

    def _leave(self) -> None:
        if self._feeding is not None:
            self._feeding.cancel()
        if self._end is None and not self._left:
            self._left = True
            if self._owns:
                commands.cancel_behind(self._box, self.id)

    async def write_stdin(self, data: str | bytes) -> None:
        """Returns when the command's side has taken it. Needs ``stdin_open=True``."""
        await self._stdin.write(data)

    async def close_stdin(self) -> None:
        """The command reads the end. Does nothing the second time."""
        await self._stdin.close()

    async def signal(self, name: str) -> bool:
        """To the command's process group, such as ``SIGINT``; False where it has ended."""
        answer = await self._box.call("signal", {"id": self.id, "signal": name})
        return bool(answer["running"])

    async def cancel(self) -> bool:
        """Ends the command with its whole tree; the stream then ends with the outcome ``Canceled``."""
        return bool((await self._box.call("cancel", {"id": self.id}))["running"])

    async def close(self) -> None:
        """Stops reading; cancels the command where this stream started it and it has not ended. One that waits in
        the loop meanwhile gets CanceledError."""
        if self._end is None:
            canceled = CanceledError("the stream was left before its end", sandbox=self._box.id, started="yes")
            self._follower.stop(canceled)
        # Someone may be in the loop: an interrupted call of the sync twin, or another task. What was stopped ends there
        # by itself; from here it cannot be closed.
        if not self._chunks.ag_running:
            await self._chunks.aclose()
        await self._follower.abandon()
        self._leave()

    async def __aenter__(self) -> CommandStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def start_stream(
    box: Box, command: commands.CommandLine, stdin_open: bool, **options: Unpack[commands.CommandOptions]
) -> CommandStream:
    prepared = commands.Prepared(command, commands.unlimited(options), stdin_open)
    follower = prepared.follower(box)
    stream = CommandStream(box, prepared.id, follower, owns=True)
    stream._feeding = prepared.feed(box, follower)
    return stream


def attach_stream(box: Box, command_id: str, stdout: int, stderr: int) -> CommandStream:
    check_arguments("sandbox.attach.request", {"id": command_id, "from_stdout": stdout, "from_stderr": stderr})
    follower = Follower(box, command_id, start={"stdout": stdout, "stderr": stderr})
    return CommandStream(box, command_id, follower, owns=False)
