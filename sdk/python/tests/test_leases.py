"""Acquire, renew and release, against a real server and a real pool."""

from __future__ import annotations

import asyncio
import time

import pytest
from conftest import Backend, until_async

import sandmesh
from sandmesh._wire.ids import new_uuid7


async def test_what_was_acquired_is_listed_and_gone_when_the_release_returns(backend: Backend) -> None:
    async with backend.connect() as mesh:
        async with await mesh.acquire(image="host", cpu=0.5, memory="512MiB", env={"A": "1"}) as box:
            views = await mesh.list()
            assert [(view.sandbox, view.state) for view in views] == [(box.id, "leased")]
            assert backend.made == [box.id]
            assert (await mesh.status())["states"]["leased"] == 1
        assert backend.made == []
        assert isinstance(box.lost, sandmesh.SandboxLostError)
        await box.release()  # a second time does nothing
        with pytest.raises(sandmesh.SandboxLostError) as caught:
            await box.exec("true")
        assert (caught.value.reason, caught.value.sandbox, caught.value.started) == ("released", box.id, "no")


async def test_connect_and_acquire_work_with_await_and_with_async_with(backend: Backend) -> None:
    mesh = await backend.connect()
    async with mesh.acquire("host") as box:
        assert backend.made == [box.id]
    task = asyncio.create_task(mesh.acquire("host"))
    other = await task
    await mesh.close()
    await mesh.close()
    assert backend.made == [] and other.lost is not None
    with pytest.raises(sandmesh.ConnectionError):
        await mesh.acquire("host")


@pytest.mark.limit(90)
async def test_with_the_server_gone_for_a_lease_and_longer_the_sandbox_is_known_as_lost(own_backend: Backend) -> None:
    mesh = await own_backend.connect(lease=1)
    box = await mesh.acquire("host")
    running = asyncio.create_task(box.exec("sleep 600"))
    reading = asyncio.create_task(box.files.stat("x"))
    told = asyncio.get_running_loop().create_future()
    box.on_lost(told.set_result)
    await asyncio.sleep(0)
    own_backend.order("kill_server")
    assert isinstance(await told, sandmesh.SandboxLostError)
    assert "its lease of 1 s could not be renewed for 1" in str(told.result())
    for asked in (running, reading, box.exec("true"), box.files.stat("x")):
        with pytest.raises(sandmesh.SandboxLostError) as caught:
            await asked
        assert (caught.value.reason, caught.value.sandbox) == ("expired", box.id)
    own_backend.order("restart_server")
    await mesh.close()
    assert own_backend.made == []


async def test_who_has_only_the_id_of_a_sandbox_learns_why_it_ended(backend: Backend) -> None:
    async with backend.connect() as mesh, backend.connect() as other:
        box = await mesh.acquire("host")
        known = other.sandbox(box.id)
        waiting = [asyncio.create_task(known.exec("sleep 600")), asyncio.create_task(known.files.stat("x"))]
        await until_async("it listens", lambda: known._box._listening)
        await box.release()
        for asked in (*waiting, known.exec("true"), other.sandbox(box.id).files.read("x")):
            with pytest.raises(sandmesh.SandboxLostError) as caught:
                await asked
            assert (caught.value.reason, caught.value.sandbox) == ("released", box.id)


async def test_a_canceled_or_late_acquire_is_taken_back(backend: Backend) -> None:
    async with backend.connect() as mesh:
        backend.order("script", boot="never")
        task = asyncio.create_task(mesh.acquire("host"))
        await until_async("it was created", lambda: len(backend.made) == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(sandmesh.AcquireTimeoutError) as caught:
            await mesh.acquire("host", timeout=0.5)
        assert caught.value.retryable
        await until_async("both are reclaimed", lambda: backend.made == [])


async def test_the_same_id_answers_the_same_sandbox(backend: Backend) -> None:
    async with backend.connect() as mesh:
        lease = new_uuid7()
        one = await mesh.acquire("host", id=lease)
        two = await mesh.acquire("host", id=lease)
        assert one.id == two.id
        assert len(backend.made) == 1
        with pytest.raises(sandmesh.ConflictError):
            await mesh.acquire("host", id=lease, cpu=2)


async def test_a_run_is_renewed_and_torn_down_as_one(backend: Backend) -> None:
    async with backend.connect() as mesh:
        other = await mesh.acquire("host")
        async with mesh.run("train-1", lease=30) as run:
            boxes = await asyncio.gather(*(run.acquire("host") for _ in range(4)))
            assert {view.sandbox for view in await run.list()} == {box.id for box in boxes}
            assert await run.renew() == 4
        assert backend.made == [other.id]
        assert all(box.lost is not None for box in boxes)


async def test_bad_wishes_are_refused_by_field_before_anything_is_sent(backend: Backend) -> None:
    async with backend.connect() as mesh:
        for options, field in [
            ({"memory": "much"}, "memory"),
            ({"memory": 5}, "memory"),
            ({"cpu": 0}, "cpu"),
            ({"run": "a.b"}, "run"),
            ({"timeout": -1}, "timeout"),
            ({"id": "x"}, "id"),
            ({"network": "internet"}, "network"),
            ({"ram": 1}, "ram"),
            ({"env": {"A=B": "1"}}, "env.A=B"),
        ]:
            with pytest.raises(sandmesh.InvalidRequestError) as caught:
                await mesh.acquire("host", **options)
            assert caught.value.field == field
        with pytest.raises(sandmesh.InvalidRequestError):
            mesh.run("*")
        with pytest.raises(sandmesh.InvalidRequestError):
            mesh.sandbox("a b")


async def test_a_provider_that_fails_is_told_as_that(backend: Backend) -> None:
    async with backend.connect() as mesh:
        backend.order("script", create="fail")
        with pytest.raises(sandmesh.SandmeshError) as caught:
            await mesh.acquire("host", timeout=5)
        assert caught.value.code in ("provider_failed", "boot_failed", "acquire_timeout")


async def _hold_while_blocked(backend: Backend, lease: float, blocked: float) -> None:
    async with backend.connect(lease=lease) as mesh:
        async with await mesh.acquire("host") as box:
            time.sleep(blocked)  # noqa: ASYNC251 (the whole point)
            assert backend.made == [box.id]
            assert [view.state for view in await mesh.list()] == ["leased"]
            assert box.lost is None


async def test_a_blocked_event_loop_loses_nothing(backend: Backend) -> None:
    await _hold_while_blocked(backend, lease=2, blocked=6)


@pytest.mark.long
@pytest.mark.limit(200)
async def test_an_event_loop_blocked_for_two_minutes_with_a_lease_of_30_s_loses_nothing(backend: Backend) -> None:
    await _hold_while_blocked(backend, lease=30, blocked=120)


def test_the_sync_twin_does_the_same(backend: Backend) -> None:
    with backend.connect_sync() as mesh:
        with mesh.acquire("host") as box:
            assert [view.sandbox for view in mesh.list()] == [box.id]
        with mesh.run("sync-1") as run:
            in_run = run.acquire("host")
            assert backend.made == [in_run.id]
        assert backend.made == []
        assert mesh.acquire("host").grant is not None
    assert backend.made == []
    mesh.close()
