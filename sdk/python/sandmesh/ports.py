"""TCP between this machine and a sandbox, both ways, over the mesh: no port of the sandbox is open to any network."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Any

from ._wire.arguments import check_arguments
from ._wire.box import Box
from ._wire.follow import Follower
from ._wire.handle import Handle
from ._wire.ids import new_uuid7
from ._wire.schema import limit
from .errors import InvalidRequestError, ProviderError, SandmeshError
from .outcomes import Exited, NotStarted
from .streams import CommandStream

log = logging.getLogger("sandmesh")

# A connection has no end that is known beforehand.
_UNLIMITED_BYTES = 64 * 1024**3
_PART_BYTES = 64 * 1024
_RESET = struct.pack("ii", 1, 0)


def _open(box: Box, port: dict[str, Any], on_output_end: Callable[[], None] = lambda: None) -> CommandStream:
    command_id = new_uuid7()
    request = {"id": command_id, "port": port, "stdin_open": True, "output_limit_bytes": _UNLIMITED_BYTES}
    request["credit_bytes"] = limit("first_credit_bytes")
    check_arguments("sandbox.exec.request", request)
    follower = Follower(box, command_id, request)
    return CommandStream(box, command_id, follower, owns=True, on_output_end=on_output_end)


def _reset(writer: asyncio.StreamWriter) -> None:
    """Not by an end, after which what came would look whole."""
    with contextlib.suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


async def _join(box: Box, port: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies both ways until both are at their end; an end on either side is the other's, and so is a cut."""
    whole = False
    try:
        async with _open(box, port, writer.write_eof) as stream:

            async def send() -> None:
                try:
                    while data := await reader.read(_PART_BYTES):
                        await stream.write_stdin(data)
                    await stream.close_stdin()
                except (OSError, SandmeshError):
                    # Half of what this side says is not the whole to the other.
                    await stream.close()

            sending = asyncio.ensure_future(send())
            try:
                async for chunk in stream:
                    writer.write(chunk.data)
                    await writer.drain()
            finally:
                sending.cancel()
                await asyncio.wait({sending})
            whole = stream.end is not None and stream.end.outcome == Exited(0)
    except (OSError, SandmeshError):
        # What became of the sandbox its own calls tell; a connection can only be cut.
        pass
    finally:
        if not whole:
            _reset(writer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


class Forward(Handle):
    """Where to connect to. ``close``, or the end of the ``async with`` block, ends listening and all connections."""

    def __init__(self, box: Box, host: str) -> None:
        self._box = box
        self.host = host
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._stop: Callable[[], Awaitable[None]] | None = None

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        self._box.caller.link.home.check()
        stop, self._stop = self._stop, None
        if stop is not None:
            await stop()
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def __aenter__(self) -> Forward:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _check_local(host: object, port: object, at_least: int) -> None:
    if not isinstance(port, int) or isinstance(port, bool) or not at_least <= port <= 65535:
        raise InvalidRequestError(f"local_port: must be a number from {at_least} to 65535", field="local_port")
    if not isinstance(host, str) or not host.isascii() or not 0 < len(host) < 256 or "\0" in host:
        raise InvalidRequestError("local_host: must be the name or address of a host", field="local_host")


async def open_forward(box: Box, port: int, host: str, local_port: int, local_host: str) -> Forward:
    target = {"type": "connect", "host": host, "port": port}
    check_arguments("sandbox.exec.request", {"port": target})
    _check_local(local_host, local_port, 0)
    forward = Forward(box, local_host)
    try:
        server = await asyncio.start_server(
            lambda reader, writer: forward._begin(_join(box, target, reader, writer)), local_host, local_port
        )
    except (OSError, UnicodeError) as error:
        field = "local_host" if isinstance(error, socket.gaierror | UnicodeError) else "local_port"
        message = f"{field}: this machine does not listen at {local_host}, port {local_port}: {error}"
        raise InvalidRequestError(message, field=field) from error
    forward.port = server.sockets[0].getsockname()[1]

    async def stop() -> None:
        server.close()

    forward._stop = stop
    return forward


async def open_exposed(box: Box, local_port: int, port: int, host: str, local_host: str) -> Forward:
    _check_local(local_host, local_port, 1)
    forward = Forward(box, host)
    listener = _open(box, {"type": "listen", "host": host, "port": port})
    said = asyncio.Queue[int]()

    async def listen() -> None:
        rest = b""
        async for chunk in listener:
            *lines, rest = (rest + chunk.data).split(b"\n")
            for line in lines:
                said.put_nowait(int(line))

    async def serve(connection: int) -> None:
        try:
            reader, writer = await asyncio.open_connection(local_host, local_port)
        except OSError:
            # The sandbox's side is closed when nobody takes it over.
            return
        accepted = {"type": "accept", "listener": listener.id, "connection": connection}
        await _join(box, accepted, reader, writer)

    async def accept() -> None:
        while True:
            forward._begin(serve(await said.get()))

    listening = asyncio.ensure_future(listen())
    first = asyncio.ensure_future(said.get())
    try:
        await asyncio.wait({listening, first}, return_when=asyncio.FIRST_COMPLETED)
        if not first.done():
            listening.result()  # raises what ended the listening from outside
            outcome = None if listener.end is None else listener.end.outcome
            why = outcome.message if isinstance(outcome, NotStarted) else f"not listening: {outcome}"
            raise ProviderError(why, sandbox=box.id)
    except BaseException:
        first.cancel()
        listening.cancel()
        await listener.close()
        raise
    forward.port = first.result()
    forward._begin(accept())

    def ended(_task: object) -> None:
        if listening.cancelled():
            return
        error = listening.exception()
        told = isinstance(error, SandmeshError) and error.reason == "closed"
        if box.lifeline.error is None and not told:
            why = error or (listener.end and listener.end.outcome)
            log.warning("sandbox %s: nobody listens at its port %d any more: %s", box.id, forward.port, why)

    listening.add_done_callback(ended)

    async def stop() -> None:
        listening.cancel()
        await asyncio.wait({listening})
        await listener.close()

    forward._stop = stop
    return forward
