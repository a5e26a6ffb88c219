"""Commands: their options, the request that they become, and running one to its end or as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Union

from ._wire.box import Box
from ._wire.follow import Follower
from ._wire.ids import check_uuid7, new_uuid7
from ._wire.parts import Source, parts_of, send_parts
from ._wire.schema import check, limit
from .errors import CanceledError, InternalError, InvalidRequestError, SandmeshError, SessionClosedError
from .results import Chunk, Chunker, CommandEnd, ExecResult, end_of, result_of
from .units import Seconds, Size, milliseconds, size_bytes

if TYPE_CHECKING:
    from typing_extensions import Unpack

Command = Union[str, Sequence[str]]  # noqa: UP007
"""A text is a line for the image's shell, a sequence a program and its arguments."""
Input = Union[str, bytes, Iterable[Union[str, bytes]], AsyncIterable[Union[str, bytes]]]  # noqa: UP007
"""Text (as UTF-8), bytes, or parts as they come."""

# Beside the time limit and the grace, until the answer must be here.
_SLACK_S = 5.0
# The wire's greatest output limit: none, where a reader takes the output as it comes.
_UNLIMITED_BYTES = 64 * 1024**3
_STDIN_TRY_S = 24 * 3600.0
_STDIN_AGAIN_S = 30.0


class CommandOptions(TypedDict, total=False):
    cwd: str
    """Working folder; default the sandbox's. Where it is missing the outcome is ``NotStarted``."""
    env: Mapping[str, str | None]
    """Added to the sandbox's environment; None removes a variable."""
    env_replace: bool
    """``env`` is all there is."""
    user: str
    """Name or uid, optionally ``:group`` or ``:gid``."""
    umask: int
    nice: int
    rlimits: Mapping[str, int]
    stdin: Input
    """Default: empty."""
    timeout: Seconds | None
    """Ends the command's whole tree after this, with the outcome ``TimedOut``; default: never."""
    grace: Seconds
    """Between SIGTERM and SIGKILL at a time-out or cancel; default 1 s, at most 60 s."""
    output_limit: Size
    """Of each stream; default 8 MiB, and no limit where the output is read as a stream. What is over is left out, and
    the result says how much."""
    keep: Literal["head", "tail", "fail"]
    """What to keep of more output: its head (default), its tail, or fail: end the command."""
    merge: bool
    """stderr into stdout, in order."""
    wait: Literal["leader", "all"]
    """``all``: the end is when background processes have let go of the output as well."""
    session: str
    """Run in this open session (see ``Sandbox.shell``)."""
    id: str
    """UUIDv7; the same one again does not run the command again, but answers the first one's result."""


_AS_THEY_ARE = frozenset({"cwd", "env_replace", "user", "umask", "nice", "keep", "merge", "wait", "session"})
_KNOWN = _AS_THEY_ARE | {"env", "rlimits", "stdin", "timeout", "grace", "output_limit", "id"}


class Prepared:
    """A command ready to be sent. Raises InvalidRequestError that names the option at fault."""

    def __init__(self, command: Command, options: CommandOptions, stdin_open: bool = False) -> None:
        unknown = next((name for name in options if name not in _KNOWN), None)
        if unknown is not None:
            raise InvalidRequestError(f"{unknown}: a command has no such option", field=unknown)
        self.id = check_uuid7("id", options["id"]) if "id" in options else new_uuid7()
        self.keep = options.get("keep")
        timeout, grace = options.get("timeout"), options.get("grace", 1.0)
        grace_ms = milliseconds(grace, "grace")
        inline, self.stdin = _split_stdin(options.get("stdin"))
        request: dict[str, Any] = {"id": self.id, "credit_bytes": limit("default_credit_bytes")}
        request |= {"shell": command} if isinstance(command, str) else {"argv": list(command)}
        request |= {name: value for name, value in options.items() if name in _AS_THEY_ARE}
        request |= {name: dict(options[name]) for name in ("env", "rlimits") if name in options}
        if inline is not None:
            request["stdin"] = inline
        if stdin_open or self.stdin is not None:
            request["stdin_open"] = True
        self.patience: float | None = None
        if timeout is not None:
            request["timeout_ms"] = max(1, milliseconds(timeout, "timeout"))
            self.patience = (request["timeout_ms"] + grace_ms) / 1000 + _SLACK_S
        if "grace" in options:
            request["grace_ms"] = grace_ms
        if "output_limit" in options:
            request["output_limit_bytes"] = size_bytes(options["output_limit"], "output_limit")
        check("sandbox.exec.request", request)
        self.request = request

    def follower(self, box: Box) -> Follower:
        return Follower(box, self.id, self.request, keep=self.keep, patience=self.patience)


def _split_stdin(stdin: Input | None) -> tuple[bytes | None, Source | None]:
    """Little is sent with the request; much, or what is still coming, behind it."""
    if stdin is None:
        return None, None
    if isinstance(stdin, str | bytes | bytearray | memoryview):
        data = stdin.encode() if isinstance(stdin, str) else bytes(stdin)
        return (data, None) if len(data) <= limit("max_chunk_bytes") else (None, [data])
    if hasattr(stdin, "__aiter__") or hasattr(stdin, "__iter__"):
        return None, stdin
    raise InvalidRequestError("stdin: must be text, bytes or an iterable of them", field="stdin")


async def run(box: Box, command: Command, check: bool, options: CommandOptions) -> ExecResult:
    """A command to its end. Cancelled, it ends the command in the sandbox."""
    prepared = Prepared(command, options)
    follower = prepared.follower(box)
    feeding = _feed(box, prepared, follower)
    frames = follower.frames()
    output: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    try:
        async for frame in frames:
            if frame["type"] == "chunk":
                output[frame["stream"]].append(frame["data"])
            elif frame["type"] == "end":
                result = result_of(frame, box.id, output)
                return result.check() if check else result
        raise InternalError("the answer ended without an outcome", sandbox=box.id, started="unknown")
    except (asyncio.CancelledError, KeyboardInterrupt, CanceledError):
        cancel_behind(box, prepared.id)
        raise
    finally:
        await frames.aclose()
        if feeding is not None:
            feeding.cancel()


def cancel_behind(box: Box, command_id: str) -> None:
    """Ends a command in the sandbox, without being waited for: asked again until it is answered, for a while."""
    if box.lifeline.error is None and not box.caller.link.loop.is_closed():
        box.caller.behind(box.call("cancel", {"id": command_id}))


def _feed(box: Box, prepared: Prepared, follower: Follower) -> asyncio.Task[None] | None:
    """Sends what stdin is not in the request, beside the reading of the output."""
    source = prepared.stdin
    if source is None:
        return None

    begun = follower.begin()

    async def feed() -> None:
        try:
            await asyncio.wait({begun})
            await send_parts(parts_of(source), lambda *part: _send_stdin(box, prepared.id, *part), _STDIN_TRY_S)
        except SandmeshError:
            # The command has ended or does not read: its writer learns no more of that than a pipe's would.
            return
        except Exception as error:
            canceled = CanceledError(f"stdin's source failed: {error}", sandbox=box.id, started="yes")
            canceled.__cause__ = error
            follower.stop(canceled)

    return asyncio.ensure_future(feed())


async def _send_stdin(box: Box, command_id: str, offset: int, data: bytes, last: bool) -> None:
    request = {"id": command_id, "offset": offset, "data": data, "eof": last}
    await box.call("stdin", request, timeout=_STDIN_TRY_S, again_after=_STDIN_AGAIN_S)


class CommandStream:
    """A command's output while it runs: ``async for chunk in stream``, then ``await stream.wait()``. Reading slowly
    slows the command down (its pipe is full), and never fills memory. Leaving the loop, or the ``async with`` block,
    before the end cancels the command, where this stream started it."""

    def __init__(self, box: Box, command_id: str, follower: Follower, owns: bool) -> None:
        self.id = command_id
        self._box = box
        self._owns = owns
        self._follower = follower
        self._end: CommandEnd | None = None
        self._left = False
        self._begun = follower.begin()
        self._chunks = self._iterate(follower)
        self._feeding: asyncio.Task[None] | None = None
        self._stdin_offset = 0  # counted after what the request carried
        self._stdin_lock = asyncio.Lock()
        self._stdin_closed = False

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
                    yield chunker.of(frame["stream"], frame["data"], frame["offset"])
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
                cancel_behind(self._box, self.id)

    async def write_stdin(self, data: str | bytes) -> None:
        """Returns when the command's side has taken it. Needs ``stdin_open=True``."""
        if self._stdin_closed:
            raise SessionClosedError("stdin is closed", reason="closed")
        await self._write(data.encode() if isinstance(data, str) else data, False)

    async def close_stdin(self) -> None:
        """The command reads the end. Does nothing the second time."""
        if not self._stdin_closed:
            self._stdin_closed = True
            await self._write(b"", True)

    async def _write(self, data: bytes, last: bool) -> None:
        async with self._stdin_lock:
            await asyncio.wait({self._begun})
            base = self._stdin_offset
            self._stdin_offset += len(data)
            async for offset, part, end in parts_of([data]):
                await _send_stdin(self._box, self.id, base + offset, part, end and last)

    async def signal(self, name: str) -> bool:
        """To the command's process group, such as ``SIGINT``; False where it has ended."""
        answer = await self._box.call("signal", {"id": self.id, "signal": name})
        return bool(answer["running"])

    async def cancel(self) -> bool:
        """Ends the command with its whole tree; the stream then ends with the outcome ``Canceled``."""
        return bool((await self._box.call("cancel", {"id": self.id}))["running"])

    async def close(self) -> None:
        """Stops reading; cancels the command where this stream started it and it has not ended."""
        canceled = CanceledError("the stream was left before its end", sandbox=self._box.id, started="yes")
        if self._end is None:
            self._follower.stop(canceled)
        await self._chunks.aclose()
        await self._follower.abandon()
        self._leave()

    async def __aenter__(self) -> CommandStream:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def start_stream(box: Box, command: Command, stdin_open: bool, **options: Unpack[CommandOptions]) -> CommandStream:
    # Who reads as it comes wants all of it. A ``tail`` or ``fail`` asks for a limit.
    if options.get("keep", "head") == "head":
        options.setdefault("output_limit", _UNLIMITED_BYTES)
    prepared = Prepared(command, options, stdin_open)
    follower = prepared.follower(box)
    stream = CommandStream(box, prepared.id, follower, owns=True)
    stream._feeding = _feed(box, prepared, follower)
    return stream


def attach_stream(box: Box, command_id: str, stdout: int, stderr: int) -> CommandStream:
    check_uuid7("id", command_id)
    follower = Follower(box, command_id, start={"stdout": stdout, "stderr": stderr})
    return CommandStream(box, command_id, follower, owns=False)
