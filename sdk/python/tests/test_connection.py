"""Connecting, being refused, and coming back, against a real server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Backend, until_async

import sandmesh
from sandmesh._wire import absence
from sandmesh.settings import Settings, mesh_file_path, resolve_settings


async def test_no_server_is_a_connection_error_at_once_and_a_silent_one_within_the_time(backend: Backend) -> None:
    with pytest.raises(sandmesh.ConnectionError) as caught:
        # An hour, within which the test would end otherwise.
        await sandmesh.connect("nats://127.0.0.1:1,nats://127.0.0.1:2", backend.credentials, timeout=3600)
    assert caught.value.retryable
    silent = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    with pytest.raises(sandmesh.ConnectionError):
        await sandmesh.connect(f"nats://127.0.0.1:{port}", backend.credentials, timeout=1)
    silent.close()


async def test_one_of_several_servers_is_enough(backend: Backend) -> None:
    async with sandmesh.connect(f"nats://127.0.0.1:1,{backend.url}", backend.credentials, timeout=30) as mesh:
        assert await mesh.list() == []


async def test_a_credential_of_another_server_is_refused_at_once(backend: Backend, own_backend: Backend) -> None:
    started = asyncio.get_running_loop().time()
    with pytest.raises(sandmesh.PermissionDeniedError):
        await sandmesh.connect(backend.url, own_backend.credentials, timeout=20)
    assert asyncio.get_running_loop().time() - started < 10


async def _write(backend: Backend, at: Path, **more: Any) -> None:
    new = at.with_suffix(".new")
    new.write_text(backend.order("user_credentials", user="ann", **more)["credentials"])
    new.replace(at)


@pytest.mark.limit(90)
async def test_a_credential_renewed_in_its_file_is_taken_up_as_the_old_one_ends(
    simulated: Backend, tmp_path: Path
) -> None:
    path = tmp_path / "user.creds"

    async def renew() -> None:
        while True:
            await _write(simulated, path, ttl_ms=3_000)
            await asyncio.sleep(1)

    await _write(simulated, path, ttl_ms=3_000)
    renewing = asyncio.create_task(renew())
    try:
        async with sandmesh.connect(simulated.url, path, lease=5) as mesh:
            box = await mesh.acquire("host")
            long = asyncio.create_task(box.exec("sleep 10", timeout=60))
            asked = 0
            while not long.done():
                assert (await box.exec(["echo", str(asked)], timeout=20)).outcome.type == "exited"
                asked += 1
                await asyncio.sleep(0.05)
            assert (await long).outcome.type == "exited"
            assert box.lost is None and asked > 20
    finally:
        renewing.cancel()


@pytest.mark.limit(90)
async def test_a_credential_that_is_refused_for_some_seconds_loses_nothing_whose_lease_lives_on(
    own_backend: Backend, backend: Backend, tmp_path: Path
) -> None:
    path = tmp_path / "user.creds"
    await _write(own_backend, path)
    async with sandmesh.connect(own_backend.url, path, lease=10) as mesh:
        box = await mesh.acquire("host")
        await _write(backend, path)
        own_backend.order("kill_server")
        own_backend.order("restart_server")

        async def is_refused() -> bool:
            try:
                await mesh.status()
            except sandmesh.PermissionDeniedError as error:
                return error.reason == "credential"
            return False

        while not await is_refused():
            await asyncio.sleep(0.1)
        await asyncio.sleep(3)
        assert box.lost is None
        await _write(own_backend, path)
        while await is_refused():
            await asyncio.sleep(0.1)
        await asyncio.sleep(8)
        assert box.lost is None and own_backend.made == [box.id]


async def test_an_observer_hears_events_and_is_told_that_it_may_ask_nothing(backend: Backend) -> None:
    credentials = backend.order("observer_credentials")["credentials"]
    async with backend.connect() as mesh, sandmesh.connect(backend.url, credentials, timeout=5) as observer:
        box = observer.sandbox("sb-none")
        for asked in (observer.acquire("host", timeout=5), observer.list(), box.exec("true")):
            with pytest.raises(sandmesh.PermissionDeniedError, match="an observer's: it may listen to events"):
                await asked
        events = observer.events()
        heard = asyncio.ensure_future(anext(events))
        while not heard.done():
            await (await mesh.acquire("host")).release()
        assert (await heard).sandbox is not None
        await events.aclose()


async def test_another_tenant_does_not_see_or_reach_a_sandbox(backend: Backend) -> None:
    credentials = backend.order("user_credentials", user="eve", tenant="other")["credentials"]
    async with backend.connect() as mesh, sandmesh.connect(backend.url, credentials) as other:
        box = await mesh.acquire("host")
        assert await other.list() == []
        with pytest.raises(sandmesh.NotFoundError):
            await other.sandbox(box.id).ping()
        with pytest.raises(sandmesh.PermissionDeniedError):
            async with sandmesh.connect(backend.url, credentials, tenant="acme", timeout=5) as stolen:
                await stolen.list()


async def test_a_sandbox_that_is_not_there_is_told_at_once(backend: Backend) -> None:
    async with backend.connect() as mesh:
        box = mesh.sandbox("sb-none")
        for asked in (box.ping(), box.files.read("x"), box.exec("true"), box.shell()):
            with pytest.raises(sandmesh.NotFoundError) as caught:
                await asked
            assert caught.value.sandbox == "sb-none"


async def test_what_is_found_to_be_lost_between_two_tries_is_not_tried_on(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with backend.connect() as mesh:
        for ask in ("ping", "read"):
            box = mesh.sandbox("sb-none")
            open_, tried = mesh._caller.link.open, 0

            async def count(*request: Any, box: Any = box, open_: Any = open_) -> Any:
                nonlocal tried
                tried += box.lost is not None
                return await open_(*request)

            monkeypatch.setattr(mesh._caller.link, "open", count)
            with pytest.raises(sandmesh.NotFoundError):
                await (box.ping() if ask == "ping" else box.files.read("x"))
            monkeypatch.undo()
            assert tried <= 1, ask


async def test_a_restarted_server_is_found_again_and_leases_live_on(own_backend: Backend) -> None:
    async with own_backend.connect() as mesh:
        box = await mesh.acquire("host")
        own_backend.order("kill_server")
        listing = asyncio.create_task(mesh.list())
        await until_async("the loss is noticed", lambda: not mesh._caller.link.connected)
        own_backend.order("restart_server")
        assert [view.sandbox for view in await listing] == [box.id]
    assert own_backend.made == []


async def _read(parts: AsyncIterable[object]) -> None:
    async for _ in parts:
        pass


async def _endless() -> AsyncIterator[bytes]:
    while True:
        yield bytes(65536)
        await asyncio.sleep(0.005)


ASKED: dict[str, Callable[[sandmesh.Mesh, sandmesh.Sandbox], Awaitable[object]]] = {
    "exec": lambda _, box: box.exec("true"),
    "start": lambda _, box: box.start("true"),
    "shell": lambda _, box: box.shell(),
    "terminal": lambda _, box: box.terminal(),
    "ping": lambda _, box: box.ping(),
    "stat": lambda _, box: box.files.stat("."),
    "read": lambda _, box: box.files.read("x"),
    "write": lambda _, box: box.files.write("x", "y"),
    "upload": lambda _, box: box.files.write("x", _endless()),
    "search": lambda _, box: box.files.search("x"),
    "sha256": lambda _, box: box.files.sha256("x"),
    "watch": lambda _, box: _read(box.files.watch(".")),
    "acquire": lambda mesh, _: mesh.acquire("host"),
    "list": lambda mesh, _: mesh.list(),
    "events": lambda mesh, _: _read(mesh.events()),
}


async def test_with_the_server_gone_all_that_is_under_way_and_all_that_is_asked_ends_as_a_typed_error(
    own_backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(absence, "GONE_S", 2.0)
    mesh = await own_backend.connect()
    box = await mesh.acquire("host")
    # Nobody answers here but the pool, and the sandbox to a ping: all others wait.
    waiting = {name: asyncio.ensure_future(ask(mesh, box)) for name, ask in ASKED.items()}
    waiting["exec"] = asyncio.ensure_future(box.exec("sleep 600"))
    waiting["read"] = asyncio.ensure_future(box.files.read("big"))
    for name in ("acquire", "list", "ping"):
        await waiting.pop(name)
    own_backend.order("kill_server")
    gone = {}
    for name, work in waiting.items():
        with pytest.raises(sandmesh.ConnectionError) as caught:
            await work
        gone[name] = caught.value
    assert {error.reason for error in gone.values()} == {"server_gone"}
    assert (gone["exec"].sandbox, gone["exec"].started) == (box.id, "unknown")
    for name, ask in ASKED.items():
        with pytest.raises(sandmesh.ConnectionError) as caught:
            await ask(mesh, box)
        assert (name, caught.value.reason) == (name, "server_gone")
    with pytest.raises(sandmesh.ConnectionError) as caught:
        await box.exec("true")
    assert (caught.value.sandbox, caught.value.started) == (box.id, "no")
    own_backend.order("restart_server")
    await mesh.close()
    assert own_backend.made == []


async def test_users_of_one_name_do_not_get_each_others_answers(backend: Backend) -> None:
    async with backend.connect() as one, backend.connect() as two:
        boxes = await asyncio.gather(*(mesh.acquire("host") for mesh in (one, two) * 8))
        assert len({box.id for box in boxes}) == 16
        assert two._caller.link.asked.streams == {} == one._caller.link.asked.streams


def settings_of(*given: Any, **more: Any) -> Settings:
    return asyncio.run(resolve_settings(*given, **more))


def test_settings_come_from_arguments_then_environment_then_the_mesh_that_is_up(
    backend: Backend, tmp_path: Path
) -> None:
    home = {"SANDMESH_HOME": str(tmp_path)}
    with pytest.raises(sandmesh.NoMeshError) as caught:
        settings_of(env=home)
    assert "sandmesh up" in str(caught.value)
    mesh_file = tmp_path / "mesh.json"
    mesh_file.write_text(json.dumps({"url": "nats://file:1", "credentials": backend.credentials}))
    assert settings_of(env=home).urls == ("nats://file:1",)
    assert settings_of(env={"XDG_STATE_HOME": str(tmp_path.parent), "SANDMESH_HOME": str(tmp_path)}).user == "ann"
    environment = {**home, "SANDMESH_URL": "nats://env:1,nats://env:2"}
    settings = settings_of(env=environment)
    assert (settings.urls, settings.tenant) == (("nats://env:1", "nats://env:2"), "acme")
    assert settings_of("nats://argument:1", env=environment).urls == ("nats://argument:1",)
    text = Path(backend.credentials).read_text()
    assert settings_of(credentials=text, env=home).user == "ann"
    assert text.split("SEED-----")[1].split()[0] not in repr(settings)
    fitting = mesh_file.read_bytes()
    for content, why in (
        (b"{", "damaged: run `sandmesh down`"),
        (fitting + b"\xff", "damaged"),
        (b'{"url": "nats://a:1", "credentials": "a\\u0000b"}', "damaged"),
        (fitting + b" " * 64 * 1024, "cannot be read: .*larger than 64 KiB"),
    ):
        mesh_file.write_bytes(content)
        with pytest.raises(sandmesh.NoMeshError, match=why):
            settings_of(env=home)
    with pytest.raises(sandmesh.InvalidRequestError, match=r"missing\.creds cannot be read") as refused:
        settings_of("nats://x:1", str(tmp_path / "missing.creds"), env={})
    assert refused.value.field == "credentials"


def test_a_credential_or_a_ca_without_end_is_refused_by_name(backend: Backend) -> None:
    with pytest.raises(sandmesh.InvalidRequestError, match="credentials: /dev/zero is larger than 64 KiB") as refused:
        settings_of("nats://a:1", "/dev/zero", env={})
    assert refused.value.field == "credentials"
    with pytest.raises(sandmesh.InvalidRequestError, match="ca: /dev/zero is larger than 1024 KiB"):
        settings_of("nats://a:1", backend.credentials, env={}, ca="/dev/zero")


@pytest.mark.parametrize("name", ["credentials", "ca"])
async def test_a_pipe_that_nobody_writes_ends_at_the_time_limit_and_keeps_nothing_else_from_running(
    backend: Backend, fifo: Path, name: str
) -> None:
    ran = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, ran.set)
    where = {"credentials": backend.credentials, name: fifo}
    with pytest.raises(sandmesh.DeadlineError, match=f"{name}: the end of {fifo} did not come in time") as late:
        await sandmesh.connect(backend.url, timeout=0.3, **where)
    assert (late.value.field, ran.is_set()) == (name, True)
    connecting = asyncio.create_task(sandmesh.connect(backend.url, timeout=3600, **where))
    await asyncio.sleep(0)
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    # Nothing reads there any more.
    with pytest.raises(OSError, match="No such device or address"):
        os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)


async def test_a_credential_comes_by_a_fifo_or_a_pipe_also_in_parts(backend: Backend, fifo: Path) -> None:
    connecting = asyncio.create_task(sandmesh.connect(backend.url, fifo))
    parts = f"(head -c 100; sleep 0.2; cat) < {backend.credentials} > {fifo}"
    writer = await asyncio.create_subprocess_shell(parts)
    async with await connecting as mesh:
        assert mesh.user == "ann"
    assert await writer.wait() == 0
    reading, writing = os.pipe()
    os.write(writing, await asyncio.to_thread(Path(backend.credentials).read_bytes))
    os.close(writing)
    async with sandmesh.connect(backend.url, f"/dev/fd/{reading}") as mesh:
        assert mesh.user == "ann"
    os.close(reading)


@pytest.mark.parametrize("name", ["credentials", "ca"])
def test_an_empty_file_is_refused_and_not_waited_for(backend: Backend, tmp_path: Path, name: str) -> None:
    empty = tmp_path / "empty"
    empty.touch()
    where = {"credentials": backend.credentials, name: str(empty)}
    with pytest.raises(sandmesh.InvalidRequestError, match=f"^{name}") as refused:
        settings_of("nats://a:1", env={}, until=time.monotonic() + 10, **where)
    assert refused.value.field == name


def test_a_mesh_file_that_is_no_regular_file_is_told_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mesh.json")
    with pytest.raises(sandmesh.NoMeshError, match=r"mesh\.json cannot be read: it is no regular file"):
        settings_of(env={"SANDMESH_HOME": str(tmp_path)})


def test_the_home_is_the_folder_itself_whatever_links_lead_there_and_is_named_in_utf_8(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("real")
    found = mesh_file_path({"SANDMESH_HOME": str(tmp_path / "link" / "a")})
    assert found == Path(os.path.realpath(tmp_path)) / "real" / "a" / "mesh.json"
    with pytest.raises(sandmesh.InvalidRequestError, match="must be named in UTF-8") as refused:
        settings_of(env={"SANDMESH_HOME": os.fsdecode(b"/a\xff")})
    assert refused.value.field == "SANDMESH_HOME"


def test_of_a_credential_and_a_ca_only_the_blocks_count(backend: Backend, tmp_path: Path) -> None:
    creds, ca = tmp_path / "creds", tmp_path / "ca"
    creds.write_bytes(b"J\xf6rg\n" + Path(backend.credentials).read_bytes())
    assert settings_of("nats://a:1", str(creds), env={}).user == "ann"
    make = ["openssl", "req", "-x509", "-newkey", "ed25519", "-nodes", "-subj", "/CN=x", "-keyout", "/dev/null"]
    certificate = subprocess.run(make, check=True, capture_output=True, text=True).stdout
    ca.write_bytes(b"# J\xf6rg\n" + certificate.encode())
    for given in (str(ca), f"# J\u00f6rg\n{certificate}"):
        settings = settings_of("nats://a:1", str(creds), env={}, ca=given)
        assert settings.ca is not None
        assert certificate in settings.ca
