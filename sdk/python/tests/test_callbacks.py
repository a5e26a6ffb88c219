"""A user's callback that raises is reported, and keeps nothing from being told or released."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Backend, until, until_async

import sandmesh


class MyError(Exception):
    pass


def bad(_error: sandmesh.SandmeshError) -> None:
    raise MyError


@pytest.fixture
def reported() -> Iterator[list[Any]]:
    """Of a loop what its exception handler is told, of a thread what ``threading.excepthook`` is."""
    told: list[Any] = []
    hook = threading.excepthook
    threading.excepthook = lambda args: told.append(args.exc_value)
    yield told
    threading.excepthook = hook


def report_to(told: list[Any]) -> None:
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context["exception"]))


async def test_a_callback_that_raises_keeps_nothing_from_being_released(backend: Backend, reported: list[Any]) -> None:
    report_to(reported)
    async with backend.connect() as mesh:
        async with await mesh.acquire("host") as box:
            box.on_lost(bad)
        assert backend.made == []
        box = await mesh.acquire("host")
        box.on_lost(bad)
        await box.release()
        assert backend.made == []
        async with mesh.run("mine") as run:
            for box in await run.acquire_many(4, "host"):
                box.on_lost(bad)
        assert backend.made == []
        left = [await mesh.acquire("host") for _ in range(2)]
        for box in left:
            box.on_lost(bad)
    assert backend.made == []
    await until_async("all are told", lambda: len(reported) == 8)
    assert {type(each) for each in reported} == {MyError}


async def test_a_callback_that_raises_keeps_nobody_from_being_told(local: Backend, reported: list[Any]) -> None:
    report_to(reported)
    async with local.connect() as mesh, local.connect() as other:
        box = await mesh.acquire("host")
        told: list[int] = []
        # Of a set of callbacks the one that raises may be any.
        for number in range(8):
            box.on_lost(bad)
            box.on_lost(lambda _error, number=number: told.append(number))  # type: ignore[misc]
        waiting = [asyncio.ensure_future(box.exec("sleep 600")) for _ in range(8)]
        taken_back = box.on_lost(lambda _error: told.append(-1))
        taken_back()
        while sum(command.running for command in await box.commands()) < len(waiting):
            await asyncio.sleep(0.02)
        await other.release(sandbox=box.id)
        for each in waiting:
            with pytest.raises(sandmesh.SandboxLostError):
                await each
        await until_async("all are told", lambda: len(told) == 8 and len(reported) == 8)
        assert sorted(told) == list(range(8))
        assert mesh._tenure.held == []


def test_without_await_a_callback_that_raises_is_reported_as_a_threads(backend: Backend, reported: list[Any]) -> None:
    def leave(_error: sandmesh.SandmeshError) -> None:
        raise SystemExit

    with backend.connect_sync() as mesh:
        with mesh.acquire("host") as box:
            box.on_lost(bad)
            box.on_lost(leave)
        assert backend.made == []
        until("it is reported", lambda: len(reported) == 2)
        assert {type(each) for each in reported} == {MyError, SystemExit}
        with mesh.acquire("host"):
            assert len(mesh.list()) == 1


async def awaited(*_what: object) -> None:
    pass


@pytest.mark.parametrize("tell", [None, 5, "x", [], {}, awaited], ids=lambda what: getattr(what, "__name__", str(what)))
async def test_what_cannot_be_called_is_no_callback(backend: Backend, tell: Any) -> None:
    async with backend.connect() as mesh, await mesh.acquire("host") as box:
        with pytest.raises(sandmesh.InvalidRequestError) as caught:
            box.on_lost(tell)
        assert caught.value.field == "tell"
        if tell is None:
            return
        for field in ("skipped", "partial"):
            for copy in (box.files.upload("/", "/x", **{field: tell}), box.files.download("/", "/x", **{field: tell})):
                with pytest.raises(sandmesh.InvalidRequestError) as caught:
                    await copy
                assert caught.value.field == field
        with pytest.raises(sandmesh.InvalidRequestError):
            await anext(box.files.pack("/", skipped=tell))


def test_without_await_what_cannot_be_called_is_no_callback(backend: Backend) -> None:
    with backend.connect_sync() as mesh, mesh.acquire("host") as box:
        for tell in (None, 5, [], awaited):
            with pytest.raises(sandmesh.InvalidRequestError) as caught:
                box.on_lost(tell)  # type: ignore[arg-type]
            assert caught.value.field == "tell"
