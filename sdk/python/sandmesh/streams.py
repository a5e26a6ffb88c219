"""A command's output while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import AsyncGenerator, Callable
from types import AsyncGeneratorType, TracebackType
from typing import TYPE_CHECKING, cast

from . import commands
from ._wire.arguments import check_arguments
from ._wire.box import Box
from ._wire.follow import Follower
from ._wire.handle import Handle
from ._wire.turns import Reader, Turns, reader_here
from .errors import CanceledError, SandmeshError
from .results import Chunk, Chunker, CommandEnd, end_of
from .stdin import StdinWriter, tell

if TYPE_CHECKING:
    from typing_extensions import Unpack


class _Reading:
    """What a stream and its loops share. It does not know the stream, so that nothing that lives on does: that one is
    forgotten is then noticed at once, by the count of its references, and not when the garbage collector comes by."""

    def __init__(
        self, box: Box, command_id: str, follower: Follower, owns: bool, on_output_end: Callable[[], None]
    ) -> None:
        self.end: CommandEnd | None = None
        self.left = False
        self.feeding: asyncio.Task[None] | None = None
        self.follower = follower
        self._failure: SandmeshError | None = None
        self._box = box
        self._id = command_id
        self._owns = owns
        self._on_output_end = on_output_end

    async def chunks(self) -> AsyncGenerator[Chunk, None]:
        chunker = Chunker()
        frames = self.follower.frames()
        try:
            async for frame in frames:
                if frame["type"] == "chunk":
                    if frame["data"]:
                        yield chunker.of(frame["stream"], frame["data"], frame["offset"])
                    if frame.get("eof") and frame["stream"] == "stdout":
                        self._on_output_end()
                elif frame["type"] == "end":
                    self.end = end_of(frame, self._box.id)
                    for name in ("stdout", "stderr"):
                        if frame.get(name):
                            yield chunker.of(name, frame[name])
        except SandmeshError as error:
            # A copy, without its traceback, which holds the one who reads.
            self.left, self._failure = True, copy.copy(error)
            raise
        finally:
            await frames.aclose()
            self.leave()

    def throw_if_left(self) -> None:
        if self.left and self.end is None:
            raise self.why_left()

    def why_left(self) -> SandmeshError:
        if self._failure is not None:
            return copy.copy(self._failure)
        message = "the stream was left before its end (within `async with` a loop may be left, and read on)"
        return CanceledError(message, sandbox=self._box.id, started="yes")

    def leave(self) -> None:
        if self.feeding is not None:
            self.feeding.cancel()
        if self.end is None and not self.left:
            self.left = True
            if self._owns:
                commands.cancel_behind(self._box, self._id)

    async def stop(self) -> None:
        """As ``leave``, also where nobody has begun to read."""
        if self.end is None:
            self.follower.stop(self.why_left())
        await self.follower.abandon()
        self.leave()

    def forgotten(self) -> None:
        """Nobody can read it any more. From any thread, between any two steps of its program."""
        link = self._box.caller.link
        if self.end is None and not self.left and not link.home.foreign:
            with contextlib.suppress(RuntimeError):  # the loop is closed: what was held went with it
                link.loop.call_soon_threadsafe(lambda: self._box.caller.behind(self.stop()))


class CommandStream(Handle):
    """A command's output while it runs: ``async for chunk in stream``, then ``await stream.wait()``. Reading slowly
    slows the command down (its pipe is full), and never fills memory. Leaving the loop before the end, by whatever,
    cancels the command where this stream started it, and ends the reading. Within ``async with stream`` only leaving
    the block does: one loop may be left there, and the next one reads on. ``await anext(stream)`` is one chunk, and
    leaves nothing. One loop at a time, of one task: another's raises InvalidRequestError. A stream that is read no
    further and let go of is left, too. What was left raises CanceledError."""

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
        self._box = box
        self._begun = follower.begin()
        self._reading = _Reading(box, command_id, follower, owns, on_output_end)
        self._chunks = cast("AsyncGeneratorType[Chunk, None]", self._reading.chunks())
        self._turns = Turns(self._chunks)
        self._in_block = False
        self._stdin = StdinWriter(box, command_id, self._begun, follower, known=owns)

    def _feed(self, feeding: asyncio.Task[None] | None) -> None:
        """``feeding`` sends what stdin its request did not carry."""
        self._reading.feeding = feeding
        if feeding is not None:
            self._stdin._behind(feeding)

    @property
    def end(self) -> CommandEnd | None:
        """How the command ended; None until the stream has been read to its end."""
        return self._reading.end

    def __aiter__(self) -> AsyncGenerator[Chunk, None]:
        return self._loop(reader_here())

    async def _loop(self, reader: Reader) -> AsyncGenerator[Chunk, None]:
        """One for each loop: nobody else holds it, so that leaving the loop ends it."""
        self._begin_loop(reader)
        try:
            while True:
                try:
                    chunk = await self._turns.step()
                except StopAsyncIteration:
                    return
                yield chunk
        finally:
            await self._leave_loop(reader)

    def _begin_loop(self, reader: Reader) -> None:
        self._reading.throw_if_left()
        self._turns.begin(reader)

    async def __anext__(self) -> Chunk:
        self._reading.throw_if_left()
        return await self._turns.step()

    async def wait(self) -> CommandEnd:
        """Returns how the command ended, when all its output was read: by a loop of another task, or, where there is
        none, by this, which throws it away."""
        return await self._wait(reader_here())

    async def _wait(self, reader: Reader) -> CommandEnd:
        self._reading.throw_if_left()
        await self._turns.drain(reader)
        if self._reading.end is None:
            raise self._reading.why_left()
        return self._reading.end

    async def _leave_loop(self, reader: Reader) -> None:
        try:
            if not self._in_block:
                await self.close()
        finally:
            self._turns.end(reader)

    async def write_stdin(self, data: str | bytes) -> None:
        """Returns when the command's side has taken it. Needs ``stdin_open=True``."""
        await self._stdin.write(data)

    async def close_stdin(self) -> None:
        """The command reads the end. Does nothing the second time."""
        await self._stdin.close()

    async def signal(self, name: str) -> bool:
        """To the command's process group, such as ``SIGINT``; False where it has ended. Raises InvalidRequestError
        while it waits for its turn in a session."""
        return await self._tell("signal", {"id": self.id, "signal": name})

    async def cancel(self) -> bool:
        """Ends the command with its whole tree; the stream then ends with the outcome ``Canceled``."""
        return await self._tell("cancel", {"id": self.id})

    async def _tell(self, verb: str, request: dict[str, str]) -> bool:
        await asyncio.wait({self._begun})
        return bool((await tell(self._box, self._reading.follower, verb, request))["running"])

    async def close(self) -> None:
        """Stops reading; cancels the command where this stream started it and it has not ended. One that waits in
        the loop meanwhile gets CanceledError."""
        if self.end is None:
            self._reading.follower.stop(self._reading.why_left())
        # Someone may be in the loop: an interrupted call of the sync twin, or another task. What was stopped ends there
        # by itself; from here it cannot be closed.
        if not self._chunks.ag_running:
            await self._chunks.aclose()
        await self._reading.stop()
        self._turns.stop()

    def __del__(self) -> None:
        reading: _Reading | None = getattr(self, "_reading", None)
        if reading is not None:
            reading.forgotten()

    async def __aenter__(self) -> CommandStream:
        self._in_block = True
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
    stream._feed(prepared.feed(box, follower))
    return stream


def attach_stream(box: Box, command_id: str, stdout: int, stderr: int) -> CommandStream:
    check_arguments("sandbox.attach.request", {"id": command_id, "from_stdout": stdout, "from_stderr": stderr})
    follower = Follower(box, command_id, start={"stdout": stdout, "stderr": stderr})
    return CommandStream(box, command_id, follower, owns=False)
