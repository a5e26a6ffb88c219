"""The end of a connection: what it holds is released, or left to the exit of its process."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from conftest import Backend, run_program, run_to_its_end, until_async
from played import play

import sandmesh


async def test_a_run_may_be_closed_after_its_connection(backend: Backend) -> None:
    mesh = await backend.connect()
    async with mesh.run("late") as run:
        await run.acquire("host")
        await mesh.close()
        assert backend.made == []


async def test_closing_leaves_nothing_also_what_is_still_being_acquired(backend: Backend) -> None:
    mesh = await backend.connect()
    await asyncio.gather(*(mesh.acquire("host") for _ in range(3)), mesh.run("other").acquire("host"))
    backend.order("script", create="wait")
    late = asyncio.create_task(mesh.acquire("host"))
    await until_async("the create is under way", lambda: len(backend.made) == 4)
    await asyncio.sleep(0)
    await mesh.close()
    with pytest.raises(sandmesh.SandmeshError):
        await late
    backend.order("proceed")
    await until_async("all is reclaimed", lambda: backend.made == [])


async def test_what_is_being_released_when_the_connection_closes_is_released_by_it_once(backend: Backend) -> None:
    async with backend.connect(run="named") as mesh:
        box = await mesh.acquire("host")
        releasing = asyncio.create_task(box.release())
        await asyncio.sleep(0)  # it has begun, and no word of the end has come
        assert not releasing.done()
        assert mesh._renewer.orders() == [{"lease": box.grant.lease}]
        await releasing
        assert mesh._renewer.orders() == []


async def test_that_a_shell_could_not_be_closed_is_told_and_logged_where_its_block_raised(
    backend: Backend, caplog: pytest.LogCaptureFixture
) -> None:
    async with play(backend) as (played, box):

        def script(verb: str, request: dict[str, Any]) -> list[Any]:
            if verb == "session_open":
                return [{"session": request["session"], "shell": "/bin/sh", "pid": 1, "busy": False}]
            return [{"error": {"code": "internal", "message": "it lives on", "retryable": False}}]

        played.script = script
        with pytest.raises(sandmesh.InternalError, match="it lives on"):
            async with box.shell():
                pass
        with caplog.at_level(logging.WARNING, "sandmesh"), pytest.raises(ZeroDivisionError):
            async with box.shell(name="work"):
                1 / 0  # noqa: B018
        assert [record.getMessage() for record in caplog.records] == [
            f"shell work of {box.id} was not closed: it lives on"
        ]


OTHER_LOOP = """
import asyncio, sandmesh

async def hold():
    mesh = await sandmesh.connect()
    run = mesh.run("whole")
    box, _other = await mesh.acquire("host"), await run.acquire("host")
    stream = box.stream("sleep 600")
    await anext(aiter(box.stream("echo begun; sleep 600")))
    return {
        "forward": await box.forward(1), "expose": await box.expose(1), "stream": stream, "shell": await box.shell(),
        "terminal": await box.terminal(), "box": box, "run": run, "mesh": mesh,
    }

async def leave(it):
    if hasattr(it, "__aexit__"):
        async with it:
            pass

async def call(method):
    await method()

held = asyncio.run(hold())
ways = {name: leave(it) for name, it in held.items()}
ways |= {"release": call(held["box"].release), "release run": call(held["run"].release)}
for name, way in (ways | {"close": call(held["mesh"].close)}).items():
    try:
        asyncio.run(way)
        print(name, "passed")
    except sandmesh.ConnectionError as error:
        print(name, "told" if "another event loop" in str(error) else error)
print("lost", held["box"].lost)
"""


def test_closing_in_another_loop_is_told_and_leaves_what_is_held_to_the_exit(local: Backend) -> None:
    program = run_program(local, OTHER_LOOP)
    said, _ = program.communicate(timeout=40)
    names = (
        "forward",
        "expose",
        "stream",
        "shell",
        "terminal",
        "box",
        "run",
        "mesh",
        "release",
        "release run",
        "close",
    )
    # Of a stream nothing is left to end there.
    ends = {name: "passed" if name == "stream" else "told" for name in names}
    assert said.splitlines() == [*(f"{name} {end}" for name, end in ends.items()), "lost None"]
    assert local.made == []


def test_a_close_that_is_cut_short_is_finished_at_the_exit(backend: Backend) -> None:
    run_to_its_end(
        backend,
        "import asyncio, sandmesh\n"
        "async def main():\n"
        "    mesh = await sandmesh.connect()\n"
        "    await asyncio.gather(mesh.acquire('host'), mesh.run('whole').acquire('host'))\n"
        "    closing = asyncio.create_task(mesh.close())\n"
        "    while not mesh._closing.begun:\n"
        "        await asyncio.sleep(0)\n"
        "    await asyncio.sleep(0)  # it has begun, and sent nothing\n"
        "    print('closing', flush=True)\n"
        "asyncio.run(main())\n",
        says="closing",
    )
