"""What a command is given to read with its request, and what is written to it behind that, against real processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from conftest import Backend

import sandmesh

BIG = b"0123456789abcde\n" * 187_500


async def halves() -> AsyncIterator[bytes]:
    yield BIG[:1_500_000]
    await asyncio.sleep(0.01)
    yield BIG[1_500_000:]


async def test_stdin_that_stays_open_is_open_behind_much_of_it_or_a_source_of_it_too(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        for stdin in (BIG, halves()):
            command = await box.start("head -c 3000000 | wc -c; cat", stdin=stdin, stdin_open=True, timeout=40)
            await command.stdin.write("written\n")
            await command.stdin.close()
            assert (await command.wait()).stdout.text == "3000000\nwritten\n"


async def test_the_stdin_of_a_stream_that_stays_open_does_so_too(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        for stdin in (BIG, halves()):
            line = "head -c 3000000 | wc -c; cat"
            async with box.stream(line, stdin=stdin, stdin_open=True, timeout=40) as stream:

                async def write(stream: sandmesh.CommandStream) -> None:
                    await stream.write_stdin("written\n")
                    await stream.close_stdin()

                writing = asyncio.ensure_future(write(stream))
                text = "".join([chunk.text async for chunk in stream])
                await writing
            assert text == "3000000\nwritten\n"


async def test_who_closes_stdin_at_once_cuts_off_nothing_of_what_it_was_started_with(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        for stdin in (BIG, halves()):
            command = await box.start(["wc", "-c"], stdin=stdin, stdin_open=True, timeout=40)
            await command.stdin.close()
            assert (await command.wait()).stdout.text == "3000000\n"
