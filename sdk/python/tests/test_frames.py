"""What no well-behaved daemon does, in its answers' order and number."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from conftest import Backend, until_async
from played import chunk, end, play, totals

import sandmesh
from sandmesh._wire import caller
from sandmesh._wire.ids import new_uuid7


async def test_doubled_chunks_are_taken_once_and_lost_ones_asked_for_again(backend: Backend) -> None:
    async with play(backend) as (played, box):

        def script(verb: str, request: dict[str, Any]) -> list[Any]:
            if verb == "exec":
                return [
                    chunk(request, 0, b"abc"),
                    chunk(request, 0, b"abc"),
                    chunk(request, 2, b"cd"),
                    chunk(request, 9, b"z"),
                ]
            if verb == "credit":
                return []
            assert (request["from_stdout"], request["id"]) == (4, played.asked[0][1]["id"])
            return [end(request, stdout=b"ef", totals=totals(6))]

        played.script = script
        assert (await box.exec("x")).stdout.bytes == b"abcdef"
        assert played.verbs() == ["exec", "credit", "attach"]


async def test_a_reader_that_was_given_up_for_its_slowness_reads_on(backend: Backend) -> None:
    async with play(backend) as (played, box):
        stalled = {"code": "busy", "message": "no credit came", "retryable": True, "reason": "reader_stalled"}

        def script(verb: str, request: dict[str, Any]) -> list[Any]:
            if verb == "exec":
                return [chunk(request, 0, b"abc"), {"error": stalled}]
            assert request["from_stdout"] == 3
            # Whose place this question takes: a reader whose way was cut is no longer waited for.
            assert played.reply.endswith("." + request["reader"])
            return [end(request, stdout=b"def", totals=totals(6))]

        played.script = script
        assert (await box.exec("x")).stdout.bytes == b"abcdef"
        assert played.verbs() == ["exec", "attach"]


async def test_who_leaves_a_command_s_output_says_so_and_who_has_all_of_it_does_not(backend: Backend) -> None:
    async with play(backend) as (played, box):

        def script(verb: str, request: dict[str, Any]) -> list[Any]:
            if verb not in ("exec", "attach"):
                return [{"running": False}] if verb == "cancel" else []
            whole = request.get("shell") == "true"
            return [chunk(request, 0, b"a"), end(request, totals=totals(1))] if whole else [chunk(request, 0, b"a")]

        async def leave(stream: sandmesh.CommandStream) -> None:
            async with stream:
                await anext(aiter(stream))

        async def begin_and_leave() -> None:
            async with box.stream("yes"):
                pass

        async def cancel(running: asyncio.Future[Any]) -> None:
            count = len(played.asked)
            await until_async("the question", lambda: len(played.asked) > count)
            running.cancel()
            await asyncio.wait({running})

        def gone() -> list[str]:
            return [request["token"] for _verb, request in played.asked if request.get("left")]

        played.script = script
        await box.exec("true")
        async with box.stream("true") as stream:
            await stream.wait()
        ways: list[Callable[[], Awaitable[None]]] = [
            lambda: leave(box.stream("yes")),
            lambda: leave(box.command(new_uuid7()).attach()),
            begin_and_leave,
            lambda: cancel(asyncio.ensure_future(box.exec("yes"))),
            lambda: cancel(asyncio.ensure_future(box.command(new_uuid7()).wait())),
        ]
        for count, way in enumerate(ways, 1):
            await way()
            await until_async("it is told", lambda count=count: len(gone()) == count)
        asked = [at for at, (verb, _request) in enumerate(played.asked) if verb in ("exec", "attach")]
        assert gone() == [played.replies[at].split(".", 5)[5] for at in asked[2:]]


async def test_a_page_without_a_path_is_not_taken_for_a_glob_s_end(backend: Backend) -> None:
    async with play(backend) as (played, box):
        pages: list[dict[str, Any]] = [
            {"paths": [], "more": True, "cursor": "a"},
            {"paths": ["b"], "more": True, "cursor": "c"},
            # Of a daemon that gives no cursor.
            {"paths": ["d"], "more": True},
            {"paths": [], "more": False},
        ]
        played.script = lambda verb, request: [pages.pop(0)] if verb == "glob" else []
        assert await box.files.glob("**/x") == ["b", "d"]
        asked = [
            {name: request[name] for name in ("cursor", "after") if name in request} for _, request in played.asked
        ]
        assert asked == [{"cursor": ""}, {"cursor": "a"}, {"cursor": "c"}, {"after": "d"}]


async def test_bytes_that_come_again_are_acknowledged_again(backend: Backend) -> None:
    async with play(backend) as (played, box):

        def script(verb: str, request: dict[str, Any]) -> list[Any]:
            # The end comes with the word that the first bytes have arrived.
            if verb == "credit":
                return [end(played.asked[0][1], stdout=b"d", totals=totals(4))]
            return [chunk(request, 0, b"abc"), chunk(request, 0, b"abc")]

        played.script = script
        assert (await box.exec("x")).stdout.bytes == b"abcd"
        credit = played.asked[1][1]
        assert (credit["received"], credit["until"]) == (3, 3 + 1024 * 1024)


async def test_output_that_stays_lost_is_told_not_hidden(backend: Backend) -> None:
    async with play(backend) as (played, box):
        played.script = lambda _verb, request: [end(request, totals=totals(10), stdout=b"short")]
        with pytest.raises(sandmesh.OutputGoneError) as caught:
            await box.exec("x")
        assert caught.value.started == "yes"


async def test_credit_grows_with_what_was_read(backend: Backend) -> None:
    async with play(backend) as (played, box):
        part = bytes(256 * 1024)

        def script(verb: str, request: dict[str, Any]) -> list[Any]:
            if verb == "credit":
                return []
            return [chunk(request, i * len(part), part) for i in range(4)]

        played.script = script
        stream = box.stream("x")
        got = 0
        async for each in stream:
            got += len(each.data)
            if got == 4 * len(part):
                break
        credits = [request for verb, request in played.asked if verb == "credit"]
        while not credits:
            await asyncio.sleep(0.01)
            credits = [request for verb, request in played.asked if verb == "credit"]
        assert credits[0]["until"] - credits[0]["received"] == 1024 * 1024
        assert credits[0]["until"] > 1024 * 1024
        await stream.close()


async def test_many_downloads_at_once_share_what_a_connection_may_have_on_its_way(backend: Backend) -> None:
    async with play(backend) as (played, box):
        part = bytes(256 * 1024)

        def script(verb: str, request: dict[str, Any]) -> list[Any]:
            if verb == "read" and request["path"] == "one more":
                return [{**chunk({"id": new_uuid7()}, 0, part), "stream": "data"}]
            return []

        played.script = script
        reading = [asyncio.ensure_future(box.files.read(str(at))) for at in range(63)]
        await until_async("all are asked", lambda: played.verbs().count("read") == 63)
        reading.append(asyncio.ensure_future(box.files.read("one more")))
        await until_async("it may go on", lambda: "credit" in played.verbs())
        for each in reading:
            each.cancel()
        await asyncio.wait(reading)
        credit = next(request for verb, request in played.asked if verb == "credit")
        assert credit["until"] - credit["received"] == 32 * 1024 * 1024 // 64


async def test_no_answer_in_time_is_a_deadline_error_and_the_command_unknown(backend: Backend) -> None:
    async with play(backend) as (played, box):
        played.script = lambda _verb, _request: []
        with pytest.raises(sandmesh.DeadlineError) as caught:
            await box.exec("x", timeout=0.1, grace=0)
        assert caught.value.started == "unknown"


async def test_a_small_write_has_a_name_by_which_it_is_done_once_and_a_chmod_is_asked_once(backend: Backend) -> None:
    async with play(backend) as (played, box):
        played.script = lambda verb, request: [{"received": 3, "done": True}]
        assert await box.files.write("a", "abc") == 3
        await box.files.chmod("a", 0o700)
        (_, write), _ = played.asked
        assert (write["data"], write["offset"], write["last"]) == (b"abc", 0, True)
        assert len(write["transfer"]) == 36
        assert "write" in caller.REPEATABLE and "attributes" not in caller.REPEATABLE
