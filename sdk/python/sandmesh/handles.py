"""A command that was started and not waited for, also one that another client started; and one on a terminal."""

from __future__ import annotations

import asyncio
import math
import time
from types import TracebackType
from typing import TYPE_CHECKING

from . import commands
from ._wire.box import Box
from ._wire.caller import CALL_TIMEOUT_S
from ._wire.follow import Follower, Patience
from ._wire.handle import Handle
from ._wire.ids import check_uuid7
from ._wire.opening import leave_block
from ._wire.parts import Source, SourceError
from .errors import NotFoundError, SandboxLostError, SandmeshError, UnknownCommandError
from .results import CommandEnd, ExecResult
from .stdin import StdinWriter
from .streams import CommandStream, attach_stream
from .units import Seconds, time_limit

if TYPE_CHECKING:
    from typing_extensions import Unpack


class Command(Handle):
    """From ``box.start`` and ``box.command``. It goes on whatever becomes of this process, while its sandbox lives."""

    def __init__(self, box: Box, id: str, pid: int | None = None, *, started: bool = False) -> None:
        self.id = id
        self.pid = pid
        """Of its first process, as the sandbox sees it; None for a handle by id, or where none started."""
        self.stdin = StdinWriter(box, id, known=started)
        """For commands that were started with ``stdin_open``."""
        self._box = box

    def attach(self, *, stdout: int = 0, stderr: int = 0) -> CommandStream:
        """Its output, from these offsets on, then as it comes. Leaving the loop leaves the command alone. Raises
        UnknownCommandError, OutputGoneError."""
        return attach_stream(self._box, self.id, stdout, stderr)

    async def wait(self) -> ExecResult:
        """Its end, with all output still held. Cancelling this ends the waiting, not the command."""
        return await commands.collect(self._box, Follower(self._box, self.id, keep="tail"))

    async def signal(self, name: str) -> bool:
        """To its process group, such as ``SIGINT``; False where it has ended. Raises InvalidRequestError while it waits
        for its turn in a session."""
        return bool((await self._box.call("signal", {"id": self.id, "signal": name}))["running"])

    async def cancel(self) -> bool:
        """Ends it with its whole tree; False where it has ended. Its outcome is ``Canceled``."""
        return bool((await self._box.call("cancel", {"id": self.id}))["running"])

    async def resize(self, rows: int, cols: int) -> None:
        """Sets the window of its terminal."""
        await self._box.call("resize", {"id": self.id, "rows": rows, "cols": cols})

    def __repr__(self) -> str:
        return f"<Command {self.id} in {self._box.id}>"


# That it runs is told at once, by a sandbox that is there.
_STARTING = Patience(CALL_TIMEOUT_S, math.inf)


def command_of(box: Box, id: str) -> Command:
    return Command(box, check_uuid7("id", id))


async def start(
    box: Box,
    line: commands.CommandLine,
    stdin_open: bool,
    options: commands.CommandOptions,
    pty: dict[str, object] | None = None,
) -> Command:
    """Returns when it runs, or could not be started: ``wait`` then tells why."""
    more = {"detach": True} if pty is None else {"detach": True, "pty": pty}
    prepared = commands.Prepared(line, options, stdin_open, more)
    follower = Follower(box, prepared.id, prepared.request, keep="tail", patience=_STARTING)
    pid: int | None = None
    frames = follower.frames()
    try:
        async for frame in frames:
            pid = frame.get("pid", pid)
    except asyncio.CancelledError:
        commands.cancel_behind(box, prepared.id)
        raise
    finally:
        await frames.aclose()
    command = Command(box, prepared.id, pid, started=True)
    if prepared.stdin is not None:
        command.stdin._behind(box.caller.behind(_feed(box, command, prepared.stdin, stdin_open)))
    return command


async def _feed(box: Box, command: Command, source: Source, stays_open: bool) -> None:
    """What the command does not take is lost, as with a pipe. A source that fails, or what cannot be delivered, ends
    the command, for which half of its input would be the whole, or which would wait for the rest for ever."""
    try:
        await command.stdin._feed(source, stays_open)
    except UnknownCommandError:
        return  # it has ended
    except (SourceError, SandmeshError):
        commands.cancel_behind(box, command.id)


class Terminal(Handle):
    """From ``box.terminal``: for full-screen programs. Its end, or that of the ``async with`` block, ends what runs on
    it."""

    def __init__(self, command: Command) -> None:
        self.command = command
        self.output = command.attach()
        """The screen's bytes, all on stdout. A loop may be left, and the next one reads on: until ``close``."""
        self.output._in_block = True
        self._beating: asyncio.Task[None] | None = None

    def _beat(self, every_s: float) -> None:
        self._beating = asyncio.ensure_future(_say_that_we_are_here(self, every_s))

    async def write(self, data: str | bytes) -> None:
        """What is typed; another client may type, too (see StdinWriter)."""
        await self.command.stdin.write(data)

    async def resize(self, rows: int, cols: int) -> None:
        await self.command.resize(rows, cols)

    async def wait(self) -> CommandEnd:
        """Returns how it ended, when ``output`` was read: by a loop of another task, or, where there is none, by this,
        which throws it away."""
        return await self.output.wait()

    async def close(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
        await self.output.close()
        try:
            await self.command.cancel()
        except (SandboxLostError, NotFoundError):
            pass

    async def __aenter__(self) -> Terminal:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await leave_block("the terminal was not closed", self.close(), error)


async def open_terminal(
    box: Box,
    command: commands.CommandLine | None,
    rows: int,
    cols: int,
    term: str | None,
    hang_up_after: Seconds | None,
    **options: Unpack[commands.CommandOptions],
) -> Terminal:
    hang_up_ms = None if hang_up_after is None else time_limit(hang_up_after, "hang_up_after")
    if command is None:
        # Without a shell the command's own outcome says so, in the sandbox's words.
        shells = (await box.call("info", {}))["shells"]
        command = [shells[0] if shells else "/bin/sh", "-l"]
    pty: dict[str, object] = {"rows": rows, "cols": cols}
    pty |= {name: value for name, value in (("term", term), ("hang_up_ms", hang_up_ms)) if value is not None}
    terminal = Terminal(await start(box, command, True, commands.unlimited(options), pty))
    if hang_up_ms is not None:
        terminal._beat(hang_up_ms / 1000 / _BEATS)
    return terminal


# How often in the time after which it is hung up this process says that it is there.
_BEATS = 4


async def _say_that_we_are_here(terminal: Terminal, every_s: float) -> None:
    """Until the terminal is closed, or its end is known."""
    command = terminal.command
    box = command._box
    # Nothing, at the beginning: taken as repeated, and heard.
    request = {"id": command.id, "offset": 0}
    due = time.monotonic()
    while terminal.output.end is None and box.lifeline.error is None and box.caller.link.closed_error is None:
        due = max(due + every_s, time.monotonic())
        await asyncio.sleep(due - time.monotonic())
        try:
            await box.caller.sandbox(box.target, "stdin", request, timeout=every_s, once=True)
        except UnknownCommandError:
            return
        except SandmeshError as error:
            box.note(error)
