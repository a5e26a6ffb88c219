"""A sandbox without ``await``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import commands, ports, sandboxes, shells
from .._wire.arguments import check_callback
from .._wire.handle import Handle
from ..errors import SandmeshError
from ..units import Seconds
from .commands import Command, CommandStream, Shell, Terminal
from .files import Files
from .loop import Loop, reporting

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..results import ExecResult


class Forward(Handle):
    """As ``sandmesh.Forward``."""

    def __init__(self, loop: Loop, inner: ports.Forward) -> None:
        self._loop = loop
        self._forward = inner
        self.host = inner.host
        self.port = inner.port

    def close(self) -> None:
        self._loop.call(self._forward.close())

    def __enter__(self) -> Forward:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.leave(self._forward.__aexit__(kind, error, trace))


class Sandbox(Handle):
    """As ``sandmesh.Sandbox``."""

    def __init__(self, loop: Loop, inner: sandboxes.Sandbox) -> None:
        self._loop = loop
        self._sandbox = inner
        self.grant = inner.grant
        self.files = Files(loop, inner.files)

    @property
    def id(self) -> str:
        return self._sandbox.id

    @property
    def run(self) -> str | None:
        return self._sandbox.run

    @property
    def lost(self) -> SandmeshError | None:
        return self._sandbox.lost

    def on_lost(self, tell: Callable[[SandmeshError], None]) -> Callable[[], None]:
        """As ``sandmesh.Sandbox.on_lost``. ``tell`` is called on the loop's thread, where it may not call this API;
        what it raises goes to ``threading.excepthook``."""
        check_callback("tell", tell)
        return self._loop.now(lambda: self._sandbox.on_lost(reporting(tell)))

    def exec(
        self, command: commands.CommandLine, *, check: bool = False, **options: Unpack[commands.CommandOptions]
    ) -> ExecResult:
        return self._loop.call(self._sandbox.exec(command, check=check, **options))

    def stream(
        self,
        command: commands.CommandLine,
        *,
        stdin_open: bool = False,
        **options: Unpack[commands.CommandOptions],
    ) -> CommandStream:
        make = self._sandbox.stream
        return CommandStream(self._loop, self._loop.now(lambda: make(command, stdin_open=stdin_open, **options)))

    def attach(self, command_id: str, *, stdout: int = 0, stderr: int = 0) -> CommandStream:
        make = self._sandbox.attach
        return CommandStream(self._loop, self._loop.now(lambda: make(command_id, stdout=stdout, stderr=stderr)))

    def cancel(self, command_id: str) -> bool:
        return self._loop.call(self._sandbox.cancel(command_id))

    def signal(self, command_id: str, name: str) -> bool:
        return self._loop.call(self._sandbox.signal(command_id, name))

    def start(
        self,
        command: commands.CommandLine,
        *,
        stdin_open: bool = False,
        **options: Unpack[commands.CommandOptions],
    ) -> Command:
        return Command(self._loop, self._loop.call(self._sandbox.start(command, stdin_open=stdin_open, **options)))

    def command(self, id: str) -> Command:
        return Command(self._loop, self._loop.now(lambda: self._sandbox.command(id)))

    def terminal(
        self,
        command: commands.CommandLine | None = None,
        *,
        rows: int = 24,
        cols: int = 80,
        term: str | None = None,
        hang_up_after: Seconds | None = None,
        **options: Unpack[commands.CommandOptions],
    ) -> Terminal:
        opening = self._sandbox.terminal(
            command, rows=rows, cols=cols, term=term, hang_up_after=hang_up_after, **options
        )
        return Terminal(self._loop, self._loop.call(opening))

    def commands(self) -> list[sandboxes.CommandInfo]:
        return self._loop.call(self._sandbox.commands())

    def shell(
        self,
        name: str | None = None,
        *,
        shell: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
    ) -> Shell:
        return Shell(self._loop, self._loop.call(self._sandbox.shell(name, shell=shell, cwd=cwd, env=env)))

    def sessions(self) -> list[shells.SessionInfo]:
        return self._loop.call(self._sandbox.sessions())

    def forward(
        self, port: int, *, host: str = "127.0.0.1", local_port: int = 0, local_host: str = "127.0.0.1"
    ) -> Forward:
        opening = self._sandbox.forward(port, host=host, local_port=local_port, local_host=local_host)
        return Forward(self._loop, self._loop.call(opening))

    def expose(
        self, local_port: int, *, port: int = 0, host: str = "127.0.0.1", local_host: str = "127.0.0.1"
    ) -> Forward:
        opening = self._sandbox.expose(local_port, port=port, host=host, local_host=local_host)
        return Forward(self._loop, self._loop.call(opening))

    def info(self) -> dict[str, Any]:
        return self._loop.call(self._sandbox.info())

    def ping(self) -> float:
        return self._loop.call(self._sandbox.ping())

    def release(self) -> None:
        self._loop.call(self._sandbox.release())

    def detach(self) -> None:
        self._loop.now(self._sandbox.detach)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.leave(self._sandbox.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return repr(self._sandbox)
