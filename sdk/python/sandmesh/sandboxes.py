"""A sandbox as its holder sees it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from . import commands, streams
from ._wire.arguments import check_arguments, check_callback
from ._wire.box import Box
from ._wire.handle import Handle
from ._wire.ids import random_name
from ._wire.opening import Opening, leave_block
from .errors import SandmeshError
from .files import Files
from .handles import Command, Terminal, command_of, open_terminal, start
from .outcomes import Outcome, outcome_from_wire
from .ports import Forward, open_exposed, open_forward
from .shells import SessionInfo, Shell, session_of
from .units import Seconds, plain

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .results import ExecResult


@dataclass(frozen=True)
class Timeline:
    """Where the time of an acquire went; seconds since the pool got the request."""

    queued: float
    created: float
    enrolled: float
    ready: float


@dataclass(frozen=True)
class Grant:
    lease: str
    generation: int
    provider: str
    timeline: Timeline
    incarnation: str
    """Of the daemon, as the sandbox's own words have it."""
    warnings: tuple[str, ...]
    """What it was to have and has not, in words, such as a limit that the machine cannot hold."""


@dataclass(frozen=True)
class SandboxInfo:
    """One line of ``mesh.list``."""

    sandbox: str
    state: str
    run: str | None
    lease: str | None
    generation: int
    image: str
    provider: str
    age: float
    """Seconds."""
    expires_in: float | None
    """Seconds until the run's lease lapses; negative: being reclaimed."""
    reason: str | None


@dataclass(frozen=True)
class CommandInfo:
    id: str
    command: str
    """Its first 200 characters."""
    running: bool
    age: float
    """Seconds since its start."""
    session: str | None
    pid: int | None
    outcome: Outcome | None
    background: tuple[int, ...]


class Owner(Protocol):
    """Who keeps a sandbox alive."""

    async def _release(self, sandbox: Sandbox) -> None: ...
    def _detach(self, sandbox: Sandbox) -> None: ...
    def _left_by(self, error: BaseException | None) -> None: ...


class Sandbox(Handle):
    """From ``mesh.acquire``; or, without a lease of its own, from ``mesh.sandbox(id)``."""

    def __init__(self, box: Box, grant: Grant | None, owner: Owner) -> None:
        self._box = box
        self._owner = owner
        self._released = False
        self._detached = False
        self.grant = grant
        """None for a handle by id."""
        self.files = Files(box)

    @property
    def id(self) -> str:
        return self._box.id

    @property
    def run(self) -> str | None:
        return self._box.run

    @property
    def lost(self) -> SandmeshError | None:
        """Why it is not ours any more, as far as is known; None while it is."""
        return self._box.lifeline.error

    def on_lost(self, tell: Callable[[SandmeshError], None]) -> Callable[[], None]:
        """Calls ``tell`` once, on the event loop, when the sandbox is lost or released, also of a handle by id. Returns
        what takes it back. What ``tell`` raises goes to the loop's exception handler, as from any callback of
        asyncio's, and keeps nobody else from being told, nor the sandbox from being released. Raises
        InvalidRequestError where it is no function, or one to be awaited."""
        check_callback("tell", tell)
        return self._box.on_lost(tell)

    async def exec(
        self, command: commands.CommandLine, *, check: bool = False, **options: Unpack[commands.CommandOptions]
    ) -> ExecResult:
        """Runs a command to its end. What it did is the result's ``outcome``, also where it failed; only what went
        wrong around it is raised, with ``started`` saying whether it may have run. Cancelling this (or Ctrl-C) ends
        the command and its whole tree in the sandbox. ``check``: raise CommandFailedError where it does not exit
        with 0."""
        return await commands.run(self._box, command, check, options)

    def stream(
        self,
        command: commands.CommandLine,
        *,
        stdin_open: bool = False,
        **options: Unpack[commands.CommandOptions],
    ) -> streams.CommandStream:
        """A command's output while it runs. ``stdin_open``: more stdin follows by ``stream.write_stdin``,
        behind all of ``stdin``."""
        return streams.start_stream(self._box, command, stdin_open, **options)

    def attach(self, command_id: str, *, stdout: int = 0, stderr: int = 0) -> streams.CommandStream:
        """The output of a command by its id, from these offsets on, while it runs and for a while after it. Raises
        UnknownCommandError where the sandbox does not know it any more."""
        return streams.attach_stream(self._box, command_id, stdout, stderr)

    async def cancel(self, command_id: str) -> bool:
        """Ends a command with its whole tree; False where it had ended."""
        return bool((await self._box.call("cancel", {"id": command_id}))["running"])

    async def signal(self, command_id: str, name: str) -> bool:
        """Sends a signal, such as ``SIGINT``, to a command's process group; False where it had ended. Raises
        InvalidRequestError while it waits for its turn in a session."""
        return bool((await self._box.call("signal", {"id": command_id, "signal": name}))["running"])

    async def start(
        self,
        command: commands.CommandLine,
        *,
        stdin_open: bool = False,
        **options: Unpack[commands.CommandOptions],
    ) -> Command:
        """Starts a command and returns; it goes on whatever becomes of this process, while the sandbox lives.
        ``stdin_open``: more stdin follows by ``command.stdin``, behind all of ``stdin``."""
        return await start(self._box, command, stdin_open, options)

    def command(self, id: str) -> Command:
        """A handle to a command by its id, also one that another client started."""
        return command_of(self._box, id)

    async def terminal(
        self,
        command: commands.CommandLine | None = None,
        *,
        rows: int = 24,
        cols: int = 80,
        term: str | None = None,
        hang_up_after: Seconds | None = None,
        **options: Unpack[commands.CommandOptions],
    ) -> Terminal:
        """``async with await box.terminal() as term``: a command on a terminal of its own; default the image's best
        shell, as a login shell. ``term``: TERM inside, default xterm-256color. ``hang_up_after``: hang it up, as a
        closed terminal is (SIGHUP), when this process has been gone for so long: killed, cut off, or too busy to say
        that it is there. Default: it stays for whoever attaches next."""
        return await open_terminal(self._box, command, rows, cols, term, hang_up_after, **options)

    async def commands(self) -> list[CommandInfo]:
        """Those that run, and those whose result is still held."""
        answer = await self._box.call("commands", {})
        return [_command_of(each) for each in answer["commands"]]

    def shell(
        self,
        name: str | None = None,
        *,
        shell: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
    ) -> Opening[Shell]:
        """``async with box.shell() as sh``: opens a persistent shell (or the one of that name), closed at the end."""
        request: dict[str, Any] = {"session": f"sh-{random_name(8)}" if name is None else name}
        options = {"shell": shell, "cwd": cwd, "env": plain(env)}
        request |= {key: value for key, value in options.items() if value is not None}
        check_arguments("sandbox.session_open.request", request, session="name", shell="shell")

        async def open_shell() -> Shell:
            try:
                return Shell(self._box, session_of(await self._box.call("session_open", request)))
            except asyncio.CancelledError:
                # One that was named may have been open before.
                if name is None:
                    self._box.caller.behind(self._box.call("session_close", {"session": request["session"]}))
                raise

        return Opening(open_shell())

    async def sessions(self) -> list[SessionInfo]:
        return [session_of(each) for each in (await self._box.call("sessions", {}))["sessions"]]

    async def forward(
        self, port: int, *, host: str = "127.0.0.1", local_port: int = 0, local_host: str = "127.0.0.1"
    ) -> Forward:
        """Reaches a server in the sandbox: each connection to the port of this machine that it answers is one to
        ``port`` there. ``async with await box.forward(8000) as forward: ... forward.port``."""
        return await open_forward(self._box, port, host, local_port, local_host)

    async def expose(
        self, local_port: int, *, port: int = 0, host: str = "127.0.0.1", local_host: str = "127.0.0.1"
    ) -> Forward:
        """Lets the sandbox reach a server of this machine: each connection in the sandbox to the port that it answers
        is one to ``local_port`` here. Raises ProviderError where the sandbox cannot listen there."""
        return await open_exposed(self._box, local_port, port, host, local_host)

    async def info(self) -> dict[str, Any]:
        """What the sandbox is and uses; the fields are those of ``info`` in the wire's reference."""
        return await self._box.call("info", {})

    async def ping(self) -> float:
        """How long the daemon took to answer, seconds. Raises what the sandbox's loss is called, or
        UnreachableError."""
        asked_at = time.perf_counter()
        await self._box.call("ping", {})
        return time.perf_counter() - asked_at

    async def release(self) -> None:
        """Ends the sandbox; returns when it is gone and verified so. Does nothing the second time."""
        if not self._released:
            await self._owner._release(self)
            self._released = True

    def detach(self) -> None:
        """Lets go of it without ending it: this process neither renews nor releases it any more, and it ends when its
        run's lease lapses, unless someone else renews the run."""
        self._owner._detach(self)
        self._detached = True

    async def __aenter__(self) -> Sandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._detached and not self._box.caller.link.home.foreign:
            self._owner._left_by(error)
            await leave_block(f"sandbox {self.id} was not released", self.release(), error)

    def __repr__(self) -> str:
        return f"<Sandbox {self.id}{' of run ' + self.run if self.run else ''}>"


def _command_of(wire: dict[str, Any]) -> CommandInfo:
    outcome = wire.get("outcome")
    return CommandInfo(
        id=wire["id"],
        command=wire["command"],
        running=wire["running"],
        age=wire["age_ms"] / 1000,
        session=wire.get("session"),
        pid=wire.get("pid"),
        outcome=None if outcome is None else outcome_from_wire(outcome),
        background=tuple(wire.get("background", ())),
    )


def grant_of(wire: dict[str, Any]) -> Grant:
    timeline = (wire["timeline"][f"{name}_ms"] / 1000 for name in ("queued", "created", "enrolled", "ready"))
    return Grant(
        lease=wire["lease"],
        generation=wire["generation"],
        provider=wire["provider"],
        timeline=Timeline(*timeline),
        incarnation=wire["incarnation"],
        warnings=tuple(wire["warnings"]),
    )


def info_of(view: dict[str, Any]) -> SandboxInfo:
    expires_in_ms = view.get("expires_in_ms")
    return SandboxInfo(
        sandbox=view["sandbox"],
        state=view["state"],
        run=view.get("run"),
        lease=view.get("lease"),
        generation=view["generation"],
        image=view["image"],
        provider=view["provider"],
        age=view["age_ms"] / 1000,
        expires_in=None if expires_in_ms is None else expires_in_ms / 1000,
        reason=view.get("reason"),
    )
