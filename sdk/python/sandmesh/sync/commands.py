"""Commands, their streams, terminals and shells without ``await``."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING

from .. import commands, handles, shells, stdin, streams
from .._wire.handle import Handle
from .._wire.turns import thread_here
from .loop import Loop

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..results import Chunk, CommandEnd, ExecResult


class CommandStream(Handle):
    """``for chunk in stream``, then ``stream.wait()``. As ``sandmesh.CommandStream``; ``next(stream)`` is one chunk,
    and leaves nothing."""

    def __init__(self, loop: Loop, stream: streams.CommandStream) -> None:
        self._loop = loop
        self._stream = stream
        self.id = stream.id

    @property
    def end(self) -> CommandEnd | None:
        return self._stream.end

    def __iter__(self) -> Iterator[Chunk]:
        """One for each loop: nobody else holds it, so that leaving the loop ends it."""
        reader = thread_here()
        self._loop.now(lambda: self._stream._begin_loop(reader))
        try:
            while (chunk := self._loop.call(self._next())) is not None:
                yield chunk
        finally:
            self._loop.let_go(lambda: self._stream._leave_loop(reader))

    def __next__(self) -> Chunk:
        chunk = self._loop.call(self._next())
        if chunk is None:
            raise StopIteration
        return chunk

    async def _next(self) -> Chunk | None:
        return await anext(self._stream, None)

    def wait(self) -> CommandEnd:
        return self._loop.call(self._stream._wait(thread_here()))

    def write_stdin(self, data: str | bytes) -> None:
        self._loop.call(self._stream.write_stdin(data))

    def close_stdin(self) -> None:
        self._loop.call(self._stream.close_stdin())

    def signal(self, name: str) -> bool:
        return self._loop.call(self._stream.signal(name))

    def cancel(self) -> bool:
        return self._loop.call(self._stream.cancel())

    def close(self) -> None:
        self._loop.leave(self._stream.close())

    def __enter__(self) -> CommandStream:
        self._stream._in_block = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class StdinWriter(Handle):
    """As ``sandmesh.StdinWriter``."""

    def __init__(self, loop: Loop, inner: stdin.StdinWriter) -> None:
        self._loop = loop
        self._stdin = inner

    def write(self, data: str | bytes) -> None:
        self._loop.call(self._stdin.write(data))

    def close(self) -> None:
        self._loop.call(self._stdin.close())


class Command(Handle):
    """As ``sandmesh.Command``."""

    def __init__(self, loop: Loop, inner: handles.Command) -> None:
        self._loop = loop
        self._command = inner
        self.id = inner.id
        self.pid = inner.pid
        self.stdin = StdinWriter(loop, inner.stdin)

    def attach(self, *, stdout: int = 0, stderr: int = 0) -> CommandStream:
        make = self._command.attach
        return CommandStream(self._loop, self._loop.now(lambda: make(stdout=stdout, stderr=stderr)))

    def wait(self) -> ExecResult:
        return self._loop.call(self._command.wait())

    def signal(self, name: str) -> bool:
        return self._loop.call(self._command.signal(name))

    def cancel(self) -> bool:
        return self._loop.call(self._command.cancel())

    def resize(self, rows: int, cols: int) -> None:
        self._loop.call(self._command.resize(rows, cols))

    def __repr__(self) -> str:
        return repr(self._command)


class Terminal(Handle):
    """As ``sandmesh.Terminal``."""

    def __init__(self, loop: Loop, inner: handles.Terminal) -> None:
        self._loop = loop
        self._terminal = inner
        self.command = Command(loop, inner.command)
        self.output = CommandStream(loop, inner.output)

    def write(self, data: str | bytes) -> None:
        self._loop.call(self._terminal.write(data))

    def resize(self, rows: int, cols: int) -> None:
        self._loop.call(self._terminal.resize(rows, cols))

    def wait(self) -> CommandEnd:
        return self.output.wait()

    def close(self) -> None:
        self._loop.leave(self._terminal.close())

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.leave(self._terminal.__aexit__(kind, error, trace))


class Shell(Handle):
    """As ``sandmesh.Shell``."""

    def __init__(self, loop: Loop, inner: shells.Shell) -> None:
        self._loop = loop
        self._shell = inner
        self.name = inner.name
        self.shell = inner.shell
        self.pid = inner.pid

    def exec(self, line: str, *, check: bool = False, **options: Unpack[commands.CommandOptions]) -> ExecResult:
        return self._loop.call(self._shell.exec(line, check=check, **options))

    def stream(self, line: str, **options: Unpack[commands.CommandOptions]) -> CommandStream:
        return CommandStream(self._loop, self._loop.now(lambda: self._shell.stream(line, **options)))

    def close(self) -> None:
        self._loop.call(self._shell.close())

    def __enter__(self) -> Shell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.leave(self._shell.__aexit__(kind, error, trace))
