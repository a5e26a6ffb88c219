"""What happens while the connection is away: nobody hears of it then, so it is asked about, or said to be missed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from conftest import Backend, until_async
from test_cuts import Way, cuttable_mesh

import sandmesh
from sandmesh import events as events_module
from sandmesh._wire.caller import Caller
from sandmesh._wire.subjects import run_event_subject


@asynccontextmanager
async def away(way: Way, mesh: sandmesh.Mesh) -> AsyncIterator[None]:
    """Within, the connection is lost."""
    link = mesh._caller.link
    way.shut()
    await until_async("the connection is lost", lambda: not link.connected)
    yield
    way.open()
    await until_async("it is back", lambda: link.connected)


def asking_lists(mesh: sandmesh.Mesh, ask: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]) -> None:
    """From now on the mesh asks for lists, one sandbox a page, through ``ask``."""
    real = Caller.pool

    async def pool(verb: str, request: dict[str, Any], **more: Any) -> dict[str, Any]:
        if verb != "list":
            return await real(mesh._caller, verb, request, **more)
        answer: dict[str, Any] = await ask(lambda: real(mesh._caller, verb, {**request, "limit": 1}, **more))
        return answer

    mesh._caller.pool = pool  # type: ignore[method-assign]


async def at_once(ask: Callable[[], Awaitable[Any]]) -> Any:
    return await ask()


def reasons_of(box: sandmesh.Sandbox) -> list[str | None]:
    told: list[str | None] = []
    box.on_lost(lambda error: told.append(error.reason))
    return told


@pytest.mark.parametrize("others", [0, 3])
async def test_a_loss_while_the_connection_was_away_is_told_to_who_waits_for_nothing_and_no_other_is(
    backend: Backend, others: int
) -> None:
    async with cuttable_mesh(backend) as (way, mesh), backend.connect() as other:
        box, *kept = await mesh.acquire_many(1 + others, "host")
        (own,) = await other.acquire_many(1, "host")
        told, not_told = reasons_of(box), [reasons_of(each) for each in kept]
        asking_lists(mesh, at_once)
        async with away(way, mesh):
            await other.release(sandbox=box.id)
        await until_async("it is told", lambda: told != [])
        assert told == ["gone"]
        assert isinstance(box.lost, sandmesh.SandboxLostError)
        assert {held.sandbox for held in mesh._tenure.held} == {each.id for each in kept}
        assert [each.lost for each in kept] == [None] * others and not_told == [[]] * others
        await own.release()


async def test_of_one_that_is_still_being_removed_the_pools_reason_is_told(backend: Backend) -> None:
    async with cuttable_mesh(backend) as (way, mesh), backend.connect() as other:
        backend.order("script", remove_failures=100)
        box = await mesh.acquire("host")
        told = reasons_of(box)
        async with away(way, mesh):
            await other.release(sandbox=box.id, wait=False)
        await until_async("it is told", lambda: told != [])
        assert told == ["released"]


async def test_what_is_acquired_while_the_pools_answer_is_on_its_way_is_not_told_as_lost(backend: Backend) -> None:
    async with cuttable_mesh(backend) as (way, mesh), backend.connect() as other:
        box = await mesh.acquire("host")
        told, answered, arrive = reasons_of(box), asyncio.Event(), asyncio.Event()

        async def late(ask: Callable[[], Awaitable[Any]]) -> Any:
            answer = await ask()
            answered.set()
            await arrive.wait()
            return answer

        asking_lists(mesh, late)
        async with away(way, mesh):
            await other.release(sandbox=box.id)
        await answered.wait()
        newer = await mesh.acquire("host")
        arrive.set()
        await until_async("the loss is told", lambda: told != [])
        assert newer.lost is None
        assert [held.sandbox for held in mesh._tenure.held] == [newer.id]


async def test_who_has_a_sandbox_by_its_id_alone_and_asks_nothing_is_told_of_its_loss(backend: Backend) -> None:
    async with backend.connect() as holder, backend.connect() as mesh:
        boxes = await holder.acquire_many(3, "host")
        handles = [mesh.sandbox(box.id) for box in boxes]
        told = [reasons_of(handle) for handle in handles]
        await boxes[0].release()
        await until_async("the first one", lambda: told[0] == ["released"])
        assert [type(handle.lost) for handle in handles] == [sandmesh.SandboxLostError, type(None), type(None)]
        await holder.release(run=boxes[1].run)
        await until_async("the others", lambda: told[1:] == [["released"], ["released"]])
        assert mesh._losses._runs == {}
        never = mesh.sandbox("sb-never")
        nothing = reasons_of(never)
        await until_async("that it is not there", lambda: nothing != [])
        assert isinstance(never.lost, sandmesh.NotFoundError)


async def test_such_a_loss_of_while_the_connection_was_away_is_told_when_it_is_back(backend: Backend) -> None:
    async with cuttable_mesh(backend) as (way, mesh), backend.connect() as holder:
        before, ended, lives = await holder.acquire_many(3, "host")
        handles = [mesh.sandbox(box.id) for box in (before, ended, lives)]
        told = [reasons_of(handle) for handle in handles]
        await before.release()
        await until_async("their run is heard", lambda: told[0] != [])
        async with away(way, mesh):
            await ended.release()
        await until_async("it is told", lambda: told[1] != [])
        assert (told[2], handles[2].lost) == ([], None)


async def test_without_await_the_loss_of_one_that_is_held_by_its_id_is_told_too(backend: Backend) -> None:
    async with backend.connect() as holder:
        box = await holder.acquire("host")
        mesh = await asyncio.to_thread(backend.connect_sync)
        told: list[str | None] = []
        mesh.sandbox(box.id).on_lost(lambda error: told.append(error.reason))
        await box.release()
        await until_async("it is told", lambda: told == ["released"])
        await asyncio.to_thread(mesh.close)


async def test_a_server_that_comes_back_costs_no_sandbox(own_backend: Backend) -> None:
    async with own_backend.connect() as mesh:
        boxes = await mesh.acquire_many(3, "host")
        looked = asyncio.Event()

        async def look(ask: Callable[[], Awaitable[Any]]) -> Any:
            answer = await ask()
            if answer.get("next") is None:
                looked.set()
            return answer

        asking_lists(mesh, look)
        own_backend.order("kill_server")
        own_backend.order("restart_server")
        await looked.wait()
        await asyncio.sleep(0)
        assert [box.lost for box in boxes] == [None] * 3


async def test_without_await_such_a_loss_is_told_too(backend: Backend) -> None:
    async with cuttable_mesh(backend) as (way, _mesh), backend.connect() as other:
        url = _mesh._caller.link.settings.urls[0]
        mesh = await asyncio.to_thread(sandmesh.sync.connect, url, backend.credentials)
        box = await asyncio.to_thread(mesh.acquire, "host")
        told: list[str | None] = []
        box.on_lost(lambda error: told.append(error.reason))
        async with away(way, mesh._mesh):
            await other.release(sandbox=box.id)
        await until_async("it is told", lambda: told != [])
        assert (told, box.lost is not None) == (["gone"], True)
        await asyncio.to_thread(mesh.close)


async def listening(mesh: sandmesh.Mesh, before: int) -> None:
    await until_async("it listens", lambda: len(mesh._caller.link._nc._subs) > before)
    await mesh._caller.link._nc.flush()


async def test_events_say_once_that_some_may_be_missing_where_the_connection_was_away(backend: Backend) -> None:
    async with cuttable_mesh(backend) as (way, mesh), backend.connect() as other:
        run = mesh.run("missing")
        events = run.events(what=["released"], sandbox="sb-1")
        before = len(mesh._caller.link._nc._subs)
        first = asyncio.ensure_future(anext(events))
        await listening(mesh, before)
        async with away(way, mesh):
            subject = run_event_subject("acme", "missing", "released")
            wire = {"what": "released", "at": "2026-01-01T00:00:00.000Z", "run": "missing", "sandbox": "sb-1"}
            backend.order("publish", subject=subject, text=json.dumps(wire))
        missed = await first
        assert (missed.what, missed.run, missed.sandbox, missed.lease) == ("missed", None, None, None)
        assert missed.at.tzinfo is not None
        # Unread, two cuts are one.
        for _ in range(2):
            async with away(way, mesh):
                pass
            await until_async("it is known to be back", lambda: not mesh._caller.link.absence.words)
        backend.order("publish", subject=subject, text=json.dumps(wire))
        assert [(await anext(events)).what for _ in range(2)] == ["missed", "released"]
        handlers = len(mesh._caller.link._reconnect_handlers)
        await events.aclose()
        assert len(mesh._caller.link._reconnect_handlers) == handlers - 1
        assert await other.list() == []


async def test_without_await_events_say_so_too(backend: Backend) -> None:
    async with cuttable_mesh(backend) as (way, _mesh):
        url = _mesh._caller.link.settings.urls[0]
        mesh = await asyncio.to_thread(sandmesh.sync.connect, url, backend.credentials)
        before = len(mesh._mesh._caller.link._nc._subs)
        events = mesh.events(what=["lost"])
        first = asyncio.ensure_future(asyncio.to_thread(next, events))
        await until_async("it listens", lambda: len(mesh._mesh._caller.link._nc._subs) > before)
        async with away(way, mesh._mesh):
            pass
        assert (await first).what == "missed"
        await asyncio.to_thread(mesh.close)


async def test_a_reader_too_far_behind_is_told_that_it_misses_the_oldest(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "_MAX_WAITING", 10)
    async with backend.connect() as mesh:
        before = len(mesh._caller.link._nc._subs)
        events = mesh.run("behind").events(what=["lost"])
        first = asyncio.ensure_future(anext(events))
        await listening(mesh, before)

        def tell(number: int) -> None:
            wire = {"what": "lost", "at": "2026-01-01T00:00:00.000Z", "run": "behind", "sandbox": f"sb-{number}"}
            backend.order("publish", subject=run_event_subject("acme", "behind", "lost"), text=json.dumps(wire))

        tell(0)
        assert (await first).sandbox == "sb-0"
        for number in range(1, 12):
            tell(number)
        # What it is asked comes behind what was told before.
        await mesh.list()
        got = [await anext(events) for _ in range(7)]
        assert [(each.what, each.sandbox) for each in got] == [
            ("missed", None),
            *(("lost", f"sb-{number}") for number in range(6, 12)),
        ]
        await events.aclose()


@pytest.mark.parametrize(
    ("field", "value"),
    [(field, value) for field in ("run", "sandbox") for value in ("Not an id", 5)]
    + [("what", value) for value in ("granted ", 5, [], ["nonsense"], ["lost", 5], ["missed"])],
)
async def test_a_filter_that_no_event_would_pass_is_refused_by_name(backend: Backend, field: str, value: Any) -> None:
    async with backend.connect() as mesh:
        with pytest.raises(sandmesh.InvalidRequestError) as refused:
            mesh.events(**{field: value})
        assert refused.value.field == field
        if field != "run":
            with pytest.raises(sandmesh.InvalidRequestError):
                mesh.run("some").events(**{field: value})
