"""A stream's readers beside each other: a loop, single chunks, and who waits for the end."""

from __future__ import annotations

import asyncio
import threading

import pytest
from conftest import Backend, until_async

import sandmesh
from sandmesh import Exited

# Lines come one by one, but where the machine is busy.
LINES = "for i in 1 2 3 4 5; do echo $i; sleep 0.05; done; exit 4"
EXPECTED = "1\n2\n3\n4\n5\n"


async def text_of(stream: sandmesh.CommandStream, seen: list[str] | None = None) -> str:
    seen = [] if seen is None else seen
    async for chunk in stream:
        seen.append(chunk.text)
    return "".join(seen)


@pytest.mark.parametrize("waits_first", [True, False])
async def test_who_waits_beside_a_reader_hears_the_end_and_takes_none_of_its_chunks(
    local: Backend, waits_first: bool
) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        command = await box.start(LINES)
        async with box.stream(LINES) as own, box.attach(command.id) as attached, await box.terminal(LINES) as terminal:
            for stream, wait in [(own, own.wait), (attached, attached.wait), (terminal.output, terminal.wait)]:
                asked = [text_of(stream), wait(), wait()]
                answers = await asyncio.gather(*(reversed(asked) if waits_first else asked))
                text, *ends = reversed(answers) if waits_first else answers
                assert text.replace("\r", "") == EXPECTED
                assert [end.outcome for end in ends] == 2 * [Exited(4)]


async def test_who_waits_reads_on_where_a_reader_leaves_and_a_reader_goes_on_where_a_wait_is_given_up(
    local: Backend,
) -> None:
    line = "echo a; read x; echo $x; read y; echo $y; exit 4"
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        async with box.stream(line, stdin_open=True) as stream:

            async def one() -> str:
                async for chunk in stream:
                    return chunk.text
                return ""

            assert await asyncio.create_task(one()) == "a\n"
            waiting = asyncio.create_task(stream.wait())
            await asyncio.sleep(0)
            # It takes over what is being waited for.
            reading = asyncio.create_task(one())
            await asyncio.sleep(0)
            waiting.cancel()
            await stream.write_stdin("b\n")
            assert await reading == "b\n"
            waiting = asyncio.create_task(stream.wait())
            await stream.write_stdin("c\n")
            assert (await waiting).outcome == Exited(4)
        async with box.stream(line, stdin_open=True) as stream:
            # A loop that its own task cannot go on with meanwhile.
            loop = aiter(stream)
            assert (await anext(loop)).text == "a\n"
            await stream.write_stdin("b\nc\n")
            assert (await stream.wait()).outcome == Exited(4)
        stream = box.stream("echo a; sleep 600")
        waits: list[asyncio.Task[sandmesh.CommandEnd]] = []
        async for _chunk in stream:
            waits.append(asyncio.create_task(stream.wait()))
            await asyncio.sleep(0)
            break
        with pytest.raises(sandmesh.CanceledError):
            await waits[0]


async def test_a_second_reader_is_told_so_and_the_first_reads_on(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        stream = box.stream("echo a; read x; echo $x; exit 4", stdin_open=True)
        seen: list[str] = []
        reading = asyncio.create_task(text_of(stream, seen))
        await until_async("it reads", lambda: seen == ["a\n"])
        for second in (text_of(stream), anext(stream)):
            with pytest.raises(sandmesh.InvalidRequestError, match="attach"):
                await second
        single = asyncio.create_task(text_of(box.attach(stream.id)))
        await stream.write_stdin("b\n")
        assert (await reading, await single) == ("a\nb\n", "a\nb\n")
        async with box.stream("read x; echo $x", stdin_open=True) as other:
            step = asyncio.ensure_future(anext(other))
            await asyncio.sleep(0)
            with pytest.raises(sandmesh.InvalidRequestError):
                await text_of(other)
            await other.write_stdin("c\n")
            assert (await step).text == "c\n"


async def test_a_loop_may_be_made_where_no_task_is(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        async with box.stream(LINES) as stream:
            made = asyncio.get_running_loop().create_future()
            asyncio.get_running_loop().call_soon(lambda: made.set_result(aiter(stream)))
            assert "".join([chunk.text async for chunk in await made]) == EXPECTED
        async with box.stream(LINES) as stream:
            loop = await asyncio.to_thread(aiter, stream)
            assert "".join([chunk.text async for chunk in loop]) == EXPECTED


def test_a_thread_waits_beside_one_that_reads(local: Backend) -> None:
    with local.connect_sync() as mesh, mesh.acquire("host") as box:
        with box.stream("echo a; read x; echo $x; exit 4", stdin_open=True) as stream:
            ends: list[sandmesh.CommandEnd] = []
            waiting = threading.Thread(target=lambda: ends.append(stream.wait()))
            seen = ""
            for chunk in stream:
                seen += chunk.text
                if seen == "a\n":
                    waiting.start()
                    stream.write_stdin("b\n")
            waiting.join()
            assert (seen, ends[0].outcome) == ("a\nb\n", Exited(4))
        with box.terminal("echo a; exit 5") as terminal:
            for _chunk in terminal.output:
                break
            assert terminal.wait().outcome == Exited(5)
