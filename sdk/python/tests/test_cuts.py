"""A long output whose way is cut in the middle, at either end or at the server, arrives whole."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from conftest import Backend, until_async
from played import SANDBOX, play

import sandmesh
from sandmesh._wire import codec

MIB = 1024 * 1024
# 64 MiB in lines that are all told apart.
LINE = "seq 10000000 17456539"
SIZE = 67_108_860


@pytest.fixture
def own_local(shared_local: Backend) -> Iterator[Backend]:
    """Real sandboxes at a server that may be ended."""
    backend = Backend("local")
    yield backend
    backend.close()


class Way:
    """To a server; ``cut`` ends all connections that lead through here, in the middle of whatever they carry."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._writers: set[asyncio.StreamWriter] = set()
        self._near: set[asyncio.StreamWriter] = set()
        self._lost: bytes | None = None
        self.is_shut = False

    async def lead(self, near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        if self.is_shut:
            near_out.close()
            return
        far_in, far_out = await asyncio.open_connection("127.0.0.1", self._port)
        self._near.add(near_out)
        await asyncio.gather(self._copy(near_in, far_out, True), self._copy(far_in, near_out, False))

    async def _copy(self, source: asyncio.StreamReader, to: asyncio.StreamWriter, asks: bool) -> None:
        self._writers.add(to)
        before = b""
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                before = (before + data)[-65600:]
                if asks and self._lost is not None and self._lost in before:
                    # Only its subject's beginning may have gone on.
                    self._lost = None
                    self.shut()
                    break
                to.write(data)
                await to.drain()
        self._writers.discard(to)
        to.close()

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def end_with(self, error: str) -> None:
        """As a server does that says why it ends the connection."""
        for near in self._near:
            near.write(f"-ERR '{error}'\r\n".encode())
            near.close()
        self._near.clear()

    def shut(self) -> None:
        """Cuts, and leads nobody until it is opened again."""
        self.is_shut = True
        self.cut()

    def open(self) -> None:
        self.is_shut = False

    def lose(self, verb: str) -> None:
        """Shuts at the next request of that verb to a sandbox, which with what is behind it does not arrive."""
        self._lost = f".{verb} rep.".encode()


@asynccontextmanager
async def cuttable_mesh(backend: Backend) -> AsyncIterator[tuple[Way, sandmesh.Mesh]]:
    """A mesh that is reached by that way."""
    way = Way(int(backend.url.rsplit(":", 1)[1]))
    server = await asyncio.start_server(way.lead, "127.0.0.1", 0)
    url = f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        async with sandmesh.connect(url, backend.credentials) as mesh:
            yield way, mesh
    finally:
        server.close()
        way.cut()


@asynccontextmanager
async def cuttable(backend: Backend) -> AsyncIterator[tuple[Way, sandmesh.Sandbox]]:
    """A sandbox that is reached by that way."""
    async with cuttable_mesh(backend) as (way, mesh), await mesh.acquire("host") as box:
        yield way, box


async def read_whole(stream: sandmesh.CommandStream, every: int, at: Callable[[], object]) -> None:
    """Reads to the end, calls ``at`` each time so much more has come, and checks the bytes."""
    got, cuts, digest = 0, 0, hashlib.sha256()
    async for chunk in stream:
        assert chunk.offset == got
        digest.update(chunk.data)
        got += len(chunk.data)
        if got >= (cuts + 1) * every:
            cuts += 1
            at()
    assert (got, cuts) == (SIZE, SIZE // every)
    line = ["sh", "-c", f"{LINE} | sha256sum"]
    expected = (await asyncio.to_thread(subprocess.run, line, capture_output=True, check=True)).stdout
    assert digest.hexdigest() == expected.decode().split()[0]
    assert (await stream.wait()).ok


async def test_a_connection_that_the_server_ends_with_an_error_comes_back(simulated: Backend) -> None:
    async with cuttable(simulated) as (way, box):
        for error in ("Slow Consumer", "Server Shutdown", "User Authentication Expired"):
            way.end_with(error)
            assert (await box.exec(["echo", error], timeout=20)).ok
        assert box.lost is None


@pytest.mark.limit(120)
async def test_a_cut_connection_of_the_reader_loses_no_byte(local: Backend) -> None:
    async with cuttable(local) as (way, box):
        await read_whole(box.stream(LINE), 20 * MIB, way.cut)


@pytest.mark.limit(120)
async def test_a_cut_connection_of_who_follows_a_detached_command_loses_no_byte(local: Backend) -> None:
    async with cuttable(local) as (way, box):
        command = await box.start(f"read go; {LINE}", stdin_open=True, output_limit="128MiB")
        following = asyncio.ensure_future(read_whole(command.attach(), 20 * MIB, way.cut))
        await command.stdin.write("\n")
        await following


@pytest.mark.limit(120)
async def test_a_restarted_server_loses_no_byte(own_local: Backend) -> None:
    def restart() -> None:
        own_local.order("kill_server")
        own_local.order("restart_server")

    async with own_local.connect() as mesh, await mesh.acquire("host") as box:
        await read_whole(box.stream(LINE), 20 * MIB, restart)


async def test_a_sum_whose_answer_is_cut_off_is_asked_for_again(local: Backend) -> None:
    async with cuttable(local) as (way, box):
        assert (await box.exec("truncate -s 300M big")).ok
        asked = asyncio.ensure_future(box.files.sha256("big"))
        # It has been sent when another question behind it is answered; its own answer takes longer.
        await box.info()
        way.cut()
        summed = await box.exec("sha256sum < big")
        assert f"{await asked}  -\n" == summed.stdout.text


async def test_what_may_not_be_asked_twice_is_told_that_its_answer_may_be_lost_and_gets_it_where_it_was_not(
    backend: Backend,
) -> None:
    async with play(backend) as (played, _box), cuttable_mesh(backend) as (way, mesh):
        played.script = lambda verb, request: []
        box = mesh.sandbox(SANDBOX)
        lost, kept = (asyncio.ensure_future(box.files.remove(path, recursive=True)) for path in "ab")
        await until_async("both are asked", lambda: played.verbs().count("remove") == 2)
        way.cut()
        looked = asyncio.ensure_future(box.files.list("c"))
        await until_async("the connection is back", lambda: "list" in played.verbs())
        looked.cancel()
        for (_verb, request), reply in zip(list(played.asked), list(played.replies), strict=True):
            if request.get("path") == "b":
                await played.client.publish(reply, codec.encode({"done": True}))
        await kept
        with pytest.raises(sandmesh.ConnectionError, match="the answer may be lost"):
            await lost
        assert played.verbs().count("remove") == 2


async def test_what_a_caller_has_given_up_is_taken_back_in_the_sandbox_by_its_name(backend: Backend) -> None:
    async with play(backend) as (played, box):
        played.script = lambda _verb, _request: []
        files = box.files
        looks = {
            "list": files.list("a"),
            "glob": files.glob("*"),
            "search": files.search("x", "a"),
            "hash": files.sha256("a"),
            "remove": files.remove("a", recursive=True),
        }
        for verb, look in looks.items():
            working = asyncio.ensure_future(look)

            def asked(verb: str = verb) -> dict[str, Any] | None:
                return next((request for name, request in played.asked if name == verb), None)

            await until_async(f"{verb} is asked", lambda: asked() is not None)
            working.cancel()
            with pytest.raises(asyncio.CancelledError):
                await working
            await until_async("it is taken back", lambda: asked("abort_transfer") is not None)
            request, aborted = asked(), asked("abort_transfer")
            assert request is not None and aborted is not None
            assert request["transfer"] == aborted["transfer"]
            played.asked.clear()
