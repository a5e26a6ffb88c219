"""The first of several messages that belong together is lost with the connection, and those behind it arrive before it
is sent again: what they are refused for is not the last word."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Backend, until_async
from test_cuts import Way, cuttable, cuttable_mesh

import sandmesh
from sandmesh import files
from sandmesh._wire import absence
from sandmesh._wire.ids import new_uuid7

BIG = bytes(range(256)) * 4096
"""Of four parts."""


async def lost(box: sandmesh.Sandbox) -> None:
    await until_async("the connection is lost", lambda: not box._box.caller.link.connected)


def behind(way: Way, box: sandmesh.Sandbox) -> AsyncIterator[bytes]:
    """BIG, of which all but the first part is sent while the connection is away."""

    async def source() -> AsyncIterator[bytes]:
        yield BIG[:300_000]
        await lost(box)
        for at in range(300_000, len(BIG), 300_000):
            yield BIG[at : at + 300_000]
        way.open()

    return source()


async def by_exec(box: sandmesh.Sandbox, source: AsyncIterator[bytes]) -> bytes:
    result = await box.exec(["cat"], stdin=source, timeout=20)
    assert result.ok
    return result.stdout.bytes


async def by_stream(box: sandmesh.Sandbox, source: AsyncIterator[bytes]) -> bytes:
    async with box.stream(["cat"], stdin=source, timeout=20) as stream:
        return b"".join([chunk.data async for chunk in stream])


@pytest.mark.parametrize("feed", [by_exec, by_stream])
async def test_input_that_comes_before_its_command_which_was_lost_arrives_whole(local: Backend, feed: Any) -> None:
    async with cuttable(local) as (way, box):
        # Which of the two is first at the sandbox when the connection is back is not the same each time.
        for _ in range(4):
            way.lose("exec")
            assert await feed(box, behind(way, box)) == BIG


async def test_input_of_a_session_that_comes_before_its_command_arrives_whole(local: Backend) -> None:
    async with cuttable(local) as (way, box), box.shell() as shell:
        way.lose("exec")
        assert (await shell.exec("cat", stdin=behind(way, box), timeout=20)).stdout.bytes == BIG


@pytest.mark.parametrize("is_read", [True, False])
async def test_what_is_written_to_a_command_that_was_lost_reaches_it(local: Backend, is_read: bool) -> None:
    async with cuttable(local) as (way, box):
        way.lose("exec")
        async with box.stream(["cat"], stdin_open=True, timeout=20) as stream:
            reading = asyncio.ensure_future(whole(stream)) if is_read else None
            await lost(box)
            writing = asyncio.ensure_future(stream.write_stdin("hello"))
            await asyncio.sleep(0)
            way.open()
            await writing
            await stream.close_stdin()
            assert await (reading or whole(stream)) == b"hello"


async def whole(stream: sandmesh.CommandStream) -> bytes:
    return b"".join([chunk.data async for chunk in stream])


async def test_a_command_that_was_lost_is_cancelled_when_it_is_there(local: Backend) -> None:
    async with cuttable(local) as (way, box):
        way.lose("exec")
        async with box.stream("sleep 600") as stream:
            ending = asyncio.ensure_future(stream.wait())
            await lost(box)
            canceling = asyncio.ensure_future(stream.cancel())
            await asyncio.sleep(0)
            way.open()
            await canceling
            assert isinstance((await ending).outcome, sandmesh.Canceled)


@pytest.mark.parametrize("started", [False, True])
async def test_input_that_cannot_be_delivered_ends_the_command(
    local: Backend, monkeypatch: pytest.MonkeyPatch, started: bool
) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        call = box._box.call

        async def refuse(verb: str, request: dict[str, Any], **options: Any) -> dict[str, Any]:
            if verb == "stdin" and request["offset"] > 0:
                raise sandmesh.TooLargeError("the message has more bytes than the server takes")
            return await call(verb, request, **options)

        monkeypatch.setattr(box._box, "call", refuse)
        if started:
            outcome = (await (await box.start("cat; sleep 600", stdin=BIG)).wait()).outcome
            assert isinstance(outcome, sandmesh.Canceled)
            return
        with pytest.raises(sandmesh.TooLargeError) as told:
            await box.exec("cat; sleep 600", stdin=BIG)
        assert told.value.started == "yes"
        command = (await box.commands())[0]
        assert isinstance((await box.attach(command.id).wait()).outcome, sandmesh.Canceled)


async def test_a_stream_whose_source_fails_ends_its_command(local: Backend) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x"
        raise ValueError("the source broke")

    async with local.connect() as mesh, await mesh.acquire("host") as box:
        async with box.stream("cat; sleep 600", stdin=broken()) as stream:
            with pytest.raises(sandmesh.CanceledError):
                await stream.wait()
        assert isinstance((await box.attach(stream.id).wait()).outcome, sandmesh.Canceled)


async def test_parts_that_come_before_the_first_which_was_lost_go_again(local: Backend) -> None:
    async with cuttable(local) as (way, box):
        way.lose("write")
        assert await box.files.write("/tmp/big", behind(way, box)) == len(BIG)
        assert await box.files.read("/tmp/big") == BIG
        packed = b"".join([part async for part in box.files.pack("/tmp/big")])
        way.lose("unpack")

        async def tar() -> AsyncIterator[bytes]:
            yield packed[:300_000]
            await lost(box)
            yield packed[300_000:]
            way.open()

        assert await box.files.unpack("/tmp/again", tar()) == len(packed)
        assert await box.files.read("/tmp/again/big") == BIG


async def test_a_transfer_that_was_given_up_in_the_midst_is_told(
    local: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    transfer = new_uuid7()
    monkeypatch.setattr(files, "new_uuid7", lambda: transfer)
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()

        async def source() -> AsyncIterator[bytes]:
            yield BIG[:300_000]
            await answer
            await box._box.call("abort_transfer", {"transfer": transfer})
            yield BIG[300_000:]

        call = box._box.call

        async def listen(verb: str, request: dict[str, Any], **options: Any) -> dict[str, Any]:
            told = await call(verb, request, **options)
            if verb == "write" and not answer.done():
                answer.set_result(None)
            return told

        monkeypatch.setattr(box._box, "call", listen)
        with pytest.raises(sandmesh.NotFoundError) as gone:
            await box.files.write("/tmp/given-up", source())
        assert gone.value.field == "transfer"
        assert not await box.files.exists("/tmp/given-up")


async def test_that_some_files_of_a_folder_came_is_told_where_its_transfer_was_given_up(
    local: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transfer = new_uuid7()
    monkeypatch.setattr(files, "new_uuid7", lambda: transfer)
    for name in range(100):
        (tmp_path / str(name)).write_bytes(BIG)
    told: list[None] = []
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        uploading = asyncio.ensure_future(box.files.upload(tmp_path, "/tmp/folder", partial=lambda: told.append(None)))
        # Of a transfer that has not begun there is none.
        while not uploading.done():
            try:
                await box._box.call("abort_transfer", {"transfer": transfer})
                break
            except sandmesh.NotFoundError:
                await asyncio.sleep(0.005)
        with pytest.raises(sandmesh.NotFoundError):
            await uploading
        assert told == [None]


@pytest.mark.parametrize("asked_while_away", [False, True])
@pytest.mark.limit(30)
async def test_a_watch_whose_beginning_was_lost_says_that_something_may_have_changed_since(
    local: Backend, asked_while_away: bool
) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as holder, cuttable_mesh(local) as (way, cut):
        box = cut.sandbox(holder.id)
        assert (await holder.exec("mkdir /tmp/w")).ok
        await box.ping()
        if asked_while_away:
            way.shut()
            await lost(box)
        else:
            way.lose("watch")
        changes = box.files.watch("/tmp/w")
        first = asyncio.ensure_future(anext(changes))
        await lost(box)
        assert (await holder.exec("touch /tmp/w/early")).ok
        way.open()
        assert (await first).kind == "overflow"
        await changes.aclose()


@pytest.mark.limit(30)
async def test_a_port_that_cannot_be_exposed_says_that_the_sandbox_is_lost(local: Backend) -> None:
    async with local.connect() as mesh, cuttable_mesh(local) as (way, cut):
        holder = await mesh.acquire("host")
        box = cut.sandbox(holder.id)
        await box.ping()
        way.lose("exec")
        exposing = asyncio.ensure_future(box.expose(1))
        await lost(box)
        await holder.release()
        way.open()
        with pytest.raises(sandmesh.SandboxLostError) as told:
            await exposing
        assert told.value.reason == "released"


@pytest.mark.limit(30)
async def test_a_port_that_cannot_be_exposed_says_that_the_server_is_gone(
    local: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(absence, "GONE_S", 2.0)
    async with local.connect() as mesh, await mesh.acquire("host") as holder, cuttable_mesh(local) as (way, cut):
        box = cut.sandbox(holder.id)
        way.lose("exec")
        with pytest.raises(sandmesh.ConnectionError) as told:
            await box.expose(1)
        assert told.value.reason == "server_gone"
        way.open()


@pytest.fixture
def expired(tmp_path: Path) -> tuple[str, str]:
    """A certificate of this machine's, and its key."""
    key, request, certificate, names = (str(tmp_path / name) for name in ("key", "request", "certificate", "names"))
    Path(names).write_text("subjectAltName=IP:127.0.0.1")
    signed = ["-signkey", key, "-extfile", names, "-days", "-1"]
    for line in (
        ["req", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", request, "-subj", "/CN=x"],
        ["x509", "-req", "-in", request, "-out", certificate, *signed],
    ):
        subprocess.run(["openssl", *line], check=True, capture_output=True)
    return certificate, key


async def test_an_expired_certificate_of_the_server_is_no_refusal_of_the_credential(
    backend: Backend, expired: tuple[str, str]
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*expired)

    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A server's first word; behind it comes the handshake, in which the client sees the certificate.
        writer.write(b'INFO {"server_id":"x","version":"2.15.1","max_payload":1048576,"tls_required":true}\r\n')
        try:
            await writer.start_tls(context)
        except OSError:
            pass
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"tls://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(sandmesh.ConnectionError, match="certificate has expired"):
        await sandmesh.connect(url, backend.credentials, ca=expired[0], timeout=10)
    server.close()
