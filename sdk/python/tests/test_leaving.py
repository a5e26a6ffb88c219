"""What is read as it comes and left early ends in the sandbox at once, by whatever the loop is left, and without the
garbage collector's coming by."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from typing import Any

import pytest
from conftest import Backend, until, until_async

import sandmesh

WAYS = ("break", "return", "raise")


@pytest.fixture(autouse=True)
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def leave(items: AsyncIterable[Any], way: str) -> BaseException | None:
    """Reads one and leaves, with ``items`` still in hand. Returns what was raised, with the frame that it went by."""

    async def read() -> object:
        async for item in items:
            if way == "break":
                break
            if way == "return":
                return item
            raise ValueError
        return None

    try:
        await read()
    except ValueError as error:
        return error
    return None


def leave_sync(items: Iterable[Any], way: str) -> BaseException | None:
    def read() -> object:
        for item in items:
            if way == "break":
                break
            if way == "return":
                return item
            raise ValueError
        return None

    try:
        read()
    except ValueError as error:
        return error
    return None


async def none_runs(box: sandmesh.Sandbox) -> None:
    deadline = asyncio.get_running_loop().time() + 20
    while any(command.running for command in await box.commands()):
        assert asyncio.get_running_loop().time() < deadline, "it still runs"
        await asyncio.sleep(0.02)


def none_runs_sync(box: sandmesh.sync.Sandbox) -> None:
    until("it has ended", lambda: not any(command.running for command in box.commands()))


def nothing_is_read(mesh: Any) -> Callable[[], bool]:
    return lambda: not mesh._caller.link.asked.streams


@pytest.mark.parametrize("way", WAYS)
async def test_leaving_the_loop_ends_the_command(local: Backend, way: str) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        for line in ("yes", "echo a; sleep 600"):
            raised = await leave(box.stream(line), way)
            await none_runs(box)
            stream = box.stream(line)
            raised = await leave(stream, way)
            await none_runs(box)
            for again in (stream.wait, lambda: leave(stream, way), stream.__anext__):  # noqa: B023
                with pytest.raises(sandmesh.CanceledError, match="left before its end"):
                    await again()
            assert (raised is None) == (way != "raise")
        async with box.shell() as shell:
            await leave(shell.stream("echo a; sleep 600"), way)
            await none_runs(box)


@pytest.mark.parametrize("way", WAYS)
def test_leaving_the_loop_without_await_ends_the_command(local: Backend, way: str) -> None:
    with local.connect_sync() as mesh, mesh.acquire("host") as box:
        for line in ("yes", "echo a; sleep 600"):
            raised = leave_sync(box.stream(line), way)
            none_runs_sync(box)
            stream = box.stream(line)
            raised = leave_sync(stream, way)
            none_runs_sync(box)
            for again in (stream.wait, lambda: leave_sync(stream, way), lambda: next(stream)):  # noqa: B023
                with pytest.raises(sandmesh.CanceledError, match="left before its end"):
                    again()
            assert (raised is None) == (way != "raise")


async def test_within_its_block_a_stream_is_read_on_after_a_loop_that_was_left(local: Backend) -> None:
    line = "while read line; do echo got $line; done"
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        async with box.stream(line, stdin_open=True) as stream:
            for word in ("a", "b"):
                await stream.write_stdin(f"{word}\n")
                async for chunk in stream:
                    assert chunk.text == f"got {word}\n"
                    break
        await none_runs(box)
        async with await box.terminal(["cat"]) as terminal:
            for _ in range(2):
                await terminal.write("x\n")
                await leave(terminal.output, "break")
        await none_runs(box)


def test_without_await_too_a_stream_is_read_on_within_its_block(local: Backend) -> None:
    line = "while read line; do echo got $line; done"
    with local.connect_sync() as mesh, mesh.acquire("host") as box:
        with box.stream(line, stdin_open=True) as stream:
            for word in ("a", "b"):
                stream.write_stdin(f"{word}\n")
                for chunk in stream:
                    assert chunk.text == f"got {word}\n"
                    break
        none_runs_sync(box)


async def test_one_chunk_by_hand_leaves_nothing_and_a_stream_let_go_of_is_left(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        stream = box.stream("read x; echo $x; read x; echo $x; sleep 600", stdin_open=True)
        for word in ("a", "b"):
            await stream.write_stdin(f"{word}\n")
            assert (await anext(stream)).text == f"{word}\n"
        assert [command.running for command in await box.commands()] == [True]
        del stream
        await none_runs(box)
        unread = box.stream("sleep 600")
        while not any(command.running for command in await box.commands()):
            await asyncio.sleep(0.02)
        del unread
        await none_runs(box)


def test_without_await_too_one_chunk_by_hand_leaves_nothing(local: Backend) -> None:
    with local.connect_sync() as mesh, mesh.acquire("host") as box:
        stream = box.stream("echo a; sleep 600")
        assert next(stream).text == "a\n"
        assert [command.running for command in box.commands()] == [True]
        del stream
        none_runs_sync(box)
        unread = box.stream("sleep 600")
        until("it runs", lambda: any(command.running for command in box.commands()))
        del unread
        none_runs_sync(box)


@pytest.mark.parametrize("way", WAYS)
async def test_leaving_what_was_attached_to_ends_the_reading_and_not_the_command(local: Backend, way: str) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        command = await box.start("yes")
        for attach in (command.attach, lambda: box.attach(command.id)):
            await leave(attach(), way)
            await until_async("it is read no more", nothing_is_read(mesh))
            held = attach()
            raised = await leave(held, way)
            await until_async("it is read no more", nothing_is_read(mesh))
            assert (raised is None) == (way != "raise")
        assert [each.running for each in await box.commands()] == [True]
        await command.cancel()


@pytest.mark.parametrize("way", WAYS)
async def test_what_files_and_events_give_as_it_comes_ends_with_its_loop(local: Backend, way: str) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        await box.exec("mkdir /tmp/w; head -c 20000000 /dev/zero > /tmp/w/f")
        subscribed = len(mesh._caller.link._nc._subs)
        makes: list[Callable[[], AsyncIterable[Any]]] = [
            lambda: box.files.read_parts("/tmp/w/f"),
            lambda: box.files.pack("/tmp/w"),
        ]
        for make in makes:
            await leave(make(), way)
            await until_async("it is read no more", nothing_is_read(mesh))
        changing = await box.start("while :; do date > /tmp/w/g; sleep 0.05; done")
        # More than a sandbox watches at once.
        for _ in range(40):
            await leave(box.files.watch("/tmp/w"), way)
        await changing.cancel()
        leaving = asyncio.ensure_future(leave(mesh.events(what=["granted"]), way))
        await until_async("it listens", lambda: len(mesh._caller.link._nc._subs) > subscribed)
        # Its answer comes behind what was subscribed before.
        async with await mesh.acquire("host"):
            await leaving
        # What was raised holds the frames that it went by, and these what they read of.
        del leaving
        await until_async("nothing is listened to", lambda: len(mesh._caller.link._nc._subs) == subscribed)


@pytest.mark.parametrize("way", WAYS)
def test_without_await_what_files_give_as_it_comes_ends_with_its_loop(local: Backend, way: str) -> None:
    with local.connect_sync() as mesh, mesh.acquire("host") as box:
        box.exec("mkdir /tmp/w; head -c 20000000 /dev/zero > /tmp/w/f")
        for make in (lambda: box.files.read_parts("/tmp/w/f"), lambda: box.files.pack("/tmp/w")):
            leave_sync(make(), way)
            until("it is read no more", nothing_is_read(mesh._mesh))
        changing = box.start("while :; do date > /tmp/w/g; sleep 0.05; done")
        # More than a sandbox watches at once.
        for _ in range(40):
            leave_sync(box.files.watch("/tmp/w"), way)
        changing.cancel()


async def test_a_download_that_cannot_be_written_ends_though_its_error_is_kept(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        await box.exec("head -c 20000000 /dev/zero > /tmp/f")
        with pytest.raises(sandmesh.FileError) as caught:
            await box.files.download("/tmp/f", "/dev/full")
        assert caught.value.reason == "ENOSPC"
        await until_async("it is read no more", nothing_is_read(mesh))
