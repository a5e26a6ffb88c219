"""Commands: their options, the request that they become, and running one to its end or as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Union

from ._wire.arguments import check_arguments
from ._wire.box import Box
from ._wire.follow import Follower, Patience
from ._wire.ids import check_uuid7, cut, new_uuid7
from ._wire.parts import Source, split
from ._wire.schema import limit
from .errors import InternalError, InvalidRequestError, SandmeshError
from .results import ExecResult, result_of
from .stdin import Input, feed
from .units import Seconds, Size, milliseconds, plain, size_bytes, time_limit

CommandLine = Union[str, Sequence[str]]  # noqa: UP007
"""A text is a line for the image's shell, a sequence a program and its arguments."""

# Beside the time limit and the grace, until the answer of a sandbox that is there must be here.
_SLACK_S = 5.0
# The wire's greatest output limit: none, where a reader takes the output as it comes.
_UNLIMITED_BYTES = 64 * 1024**3


class CommandOptions(TypedDict, total=False):
    """Each left out, or None, is the default."""

    cwd: str | None
    """Working folder; default the sandbox's. Where it is missing the outcome is ``NotStarted``."""
    env: Mapping[str, str | None] | None
    """Added to the sandbox's environment; None removes a variable."""
    env_replace: bool | None
    """``env`` is all there is."""
    user: str | None
    """Name or uid, optionally ``:group`` or ``:gid``."""
    umask: int | None
    nice: int | None
    rlimits: Mapping[str, int] | None
    stdin: Input | None
    """Default: empty. An iterable that raises, or gives what is neither text nor bytes, ends the command:
    CanceledError; of one that ``start`` has started the outcome is ``Canceled``."""
    timeout: Seconds | None
    """Ends the command's whole tree after this, with the outcome ``TimedOut``; above 0, default: never."""
    grace: Seconds | None
    """Between SIGTERM and SIGKILL at a time-out or cancel; default 1 s, at most 60 s."""
    output_limit: Size | None
    """Of each stream; default 8 MiB, and no limit where the output is read as a stream. What is over is left out, and
    the result says how much."""
    keep: Literal["head", "tail", "fail"] | None
    """What to keep of more output: its head (default), its tail, or fail: end the command."""
    merge: bool | None
    """stderr into stdout, in order."""
    wait: Literal["leader", "all"] | None
    """``all``: the end is when background processes have let go of the output as well."""
    session: str | None
    """Run in this open session (see ``Sandbox.shell``)."""
    id: str | None
    """UUIDv7; the same one again does not run the command again, but answers the first one's result."""


_AS_THEY_ARE = frozenset("cwd env env_replace user umask nice rlimits keep merge wait session".split())
_KNOWN = _AS_THEY_ARE | {"stdin", "timeout", "grace", "output_limit", "id"}


class Prepared:
    """A command ready to be sent. Raises InvalidRequestError that names the option at fault."""

    def __init__(
        self,
        command: CommandLine,
        options: CommandOptions,
        stdin_open: bool = False,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        unknown = next((name for name in options if name not in _KNOWN), None)
        if unknown is not None:
            unknown = cut(unknown, 60)
            raise InvalidRequestError(f"{unknown}: a command has no such option", field=unknown)
        self.id = check_uuid7("id", given["id"]) if "id" in given else new_uuid7()
        self.keep = given.get("keep")
        grace_ms = milliseconds(given.get("grace", 1.0), "grace")
        inline, source = split(given["stdin"], "stdin") if "stdin" in given else (b"", ())
        self._stdin_open = stdin_open
        self.stdin: Source | None = source if inline is None else None
        request: dict[str, Any] = {"id": self.id, **_program(command)}
        request |= {"credit_bytes": limit("first_credit_bytes")} if more is None else more
        request |= {name: plain(value) for name, value in given.items() if name in _AS_THEY_ARE}
        if inline:
            request["stdin"] = inline
        if stdin_open or inline is None:
            request["stdin_open"] = True
        self.patience: Patience | None = None
        if "timeout" in given:
            request["timeout_ms"] = time_limit(given["timeout"], "timeout")
            self.patience = Patience(request["timeout_ms"] / 1000, grace_ms / 1000 + _SLACK_S)
        if "grace" in given:
            request["grace_ms"] = grace_ms
        if "output_limit" in given:
            request["output_limit_bytes"] = size_bytes(given["output_limit"], "output_limit")
        check_arguments("sandbox.exec.request", request)
        self.request = request

    def follower(self, box: Box) -> Follower:
        return Follower(box, self.id, self.request, keep=self.keep, patience=self.patience)

    def feed(self, box: Box, follower: Follower) -> asyncio.Task[None] | None:
        """Sends what stdin is not in the request, beside the reading of the output."""
        if self.stdin is None:
            return None

        def fail(error: SandmeshError) -> None:
            # Half of its input is not to be taken for the whole.
            follower.stop(error)
            cancel_behind(box, self.id)

        return feed(box, self.id, self.stdin, follower.begin(), follower, fail, self._stdin_open)


def _program(command: object) -> dict[str, Any]:
    if isinstance(command, str):
        return {"shell": command}
    if isinstance(command, Sequence) and not isinstance(command, bytes | bytearray | memoryview):
        return {"argv": list(command)}
    message = "command: must be a line for the shell, or a list of a program and its arguments"
    raise InvalidRequestError(message, field="command")


def unlimited(options: CommandOptions) -> CommandOptions:
    """Who reads as it comes wants all of it. A ``tail`` or ``fail`` asks for a limit."""
    if options.get("output_limit") is None and options.get("keep") in (None, "head"):
        return {**options, "output_limit": _UNLIMITED_BYTES}
    return options


async def run(box: Box, command: CommandLine, check: bool, options: CommandOptions) -> ExecResult:
    """A command to its end. Cancelled, it ends the command in the sandbox."""
    prepared = Prepared(command, options)
    follower = prepared.follower(box)
    feeding = prepared.feed(box, follower)
    try:
        result = await collect(box, follower)
        return result.check() if check else result
    except (asyncio.CancelledError, KeyboardInterrupt):
        cancel_behind(box, prepared.id)
        raise
    finally:
        if feeding is not None:
            feeding.cancel()


async def collect(box: Box, follower: Follower) -> ExecResult:
    frames = follower.frames()
    output: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    try:
        async for frame in frames:
            if frame["type"] == "chunk":
                output[frame["stream"]].append(frame["data"])
            elif frame["type"] == "end":
                return result_of(frame, box.id, output)
        raise InternalError("the answer ended without an outcome", sandbox=box.id, started="unknown")
    finally:
        await frames.aclose()


def cancel_behind(box: Box, command_id: str) -> None:
    """Ends a command in the sandbox, without being waited for: asked again until it is answered, for a while."""
    if box.lifeline.error is None and not box.caller.link.loop.is_closed():
        box.caller.behind(box.call("cancel", {"id": command_id}))
