"""The sync twin: interrupts at any step, many threads, forks, and a loop that runs already."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from conftest import Backend, first_line, run_program, until

import sandmesh
from sandmesh.sync.loop import Loop


class Interrupt(BaseException):
    pass


def interrupted(work: Callable[[], object], step: int) -> bool:
    """Runs ``work`` and raises Interrupt in this thread at its ``step``-th line, as a signal's handler would."""
    left = step

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal left
        if event == "line" and "weakref" not in frame.f_code.co_filename:
            left -= 1
            if left == 0:
                raise Interrupt
        return trace

    sys.settrace(trace)
    try:
        work()
    except Interrupt:
        return True
    finally:
        sys.settrace(None)
    return False


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_an_interrupt_at_any_step_of_a_call_leaves_nothing_running_and_the_loop_usable() -> None:
    loop = Loop()

    async def work() -> int:
        await asyncio.sleep(0.002)
        return 7

    try:
        step, ended = 1, 0
        while ended < 3:
            ended = 0 if interrupted(lambda: loop.call(work()), step) else ended + 1
            step += 1
            running = loop.now(lambda: len(asyncio.all_tasks()))
            assert running == 1, f"at step {step} what was interrupted runs on"
            assert loop.call(work()) == 7
        assert step > 20
    finally:
        loop.close()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_an_interrupt_at_any_step_of_a_stream_is_what_is_raised(local: Backend) -> None:
    with local.connect_sync() as mesh, mesh.acquire("host") as box:

        def read() -> None:
            with box.stream("echo a; sleep 0.01; echo b") as stream:
                for _chunk in stream:
                    pass

        for step in [*range(1, 120, 7), *range(120, 900, 31)]:
            interrupted(read, step)  # raises what is no Interrupt
        assert box.exec("echo lives").stdout.text == "lives\n"
        until("all have ended", lambda: not any(command.running for command in box.commands()))


def test_a_stream_is_closed_while_another_thread_reads_it(local: Backend) -> None:
    with local.connect_sync() as mesh, mesh.acquire("host") as box:
        stream = box.stream("sleep 600")
        reading = ThreadPoolExecutor(1).submit(lambda: list(stream))
        until("it runs", lambda: any(command.running for command in box.commands()))
        stream.close()
        with pytest.raises(sandmesh.CanceledError):
            reading.result(20)
        until("it has ended", lambda: not any(command.running for command in box.commands()))


def test_a_pool_of_64_threads_acquires_and_executes(simulated: Backend) -> None:
    with simulated.connect_sync() as mesh:

        def rollout(number: int) -> str:
            with mesh.acquire("any") as box:
                return "".join(box.exec(["echo", f"{number}-{i}"], timeout=30).stdout.text for i in range(3))

        with ThreadPoolExecutor(64) as threads:
            results = list(threads.map(rollout, range(256)))
        assert results == [f"{number}-0\n{number}-1\n{number}-2\n" for number in range(256)]
    assert simulated.made == []


def test_closing_ends_the_calls_of_other_threads(local: Backend) -> None:
    mesh = local.connect_sync()
    box = mesh.acquire("host")
    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(box.exec, "sleep 600"), threads.submit(lambda: next(mesh.events(what=["draining"])))]
        until("it runs", lambda: any(command.running for command in box.commands()))
        mesh.close()
        for each in running:
            with pytest.raises(sandmesh.SandmeshError):
                each.result(20)
    for call in (lambda: box.exec("true"), mesh.list, mesh.status):
        with pytest.raises(sandmesh.SandmeshError):
            call()
    mesh.close()


def test_where_a_loop_runs_already_as_in_a_notebook_the_sync_twin_works(local: Backend) -> None:
    async def cell() -> str:
        with local.connect_sync() as mesh, mesh.acquire("host") as box:
            return box.exec("echo from a cell").stdout.text

    assert asyncio.run(cell()) == "from a cell\n"


def test_ctrl_c_ends_the_command_and_the_rest_works(local: Backend) -> None:
    with local.connect_sync() as mesh, mesh.acquire("host") as box:
        done = threading.Event()

        def press() -> None:
            until("it runs", lambda: done.is_set() or any(command.running for command in box.commands()))
            if not done.is_set():
                signal.raise_signal(signal.SIGINT)
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

        thread = threading.Thread(target=press)
        thread.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                box.exec("sleep 600")
                time.sleep(20)
        finally:
            done.set()
            thread.join()
        until("the command has ended", lambda: not any(command.running for command in box.commands()))
        assert box.exec("echo lives").stdout.text == "lives\n"


def test_ctrl_c_ends_the_wait_for_a_credential_that_nobody_writes(backend: Backend, fifo: Path) -> None:
    done = threading.Event()

    def press() -> None:
        writing: list[int] = []

        def opened() -> bool:
            # Only where it is being read it can be opened for writing.
            with contextlib.suppress(OSError):
                writing.append(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))
            return bool(writing)

        until("it is read", lambda: done.is_set() or opened())
        if not done.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        done.wait()
        for file in writing:
            os.close(file)

    thread = threading.Thread(target=press)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            sandmesh.sync.connect(backend.url, fifo, timeout=30)
    finally:
        done.set()
        thread.join()


def test_a_forked_child_is_told_to_connect_by_itself(backend: Backend) -> None:
    program = run_program(
        backend,
        "import asyncio, os, sandmesh\n"
        "def say(what): print(type(what).__name__, str(what)[:60], flush=True)\n"
        "with sandmesh.sync.connect() as mesh:\n"
        "    box = mesh.acquire('host')\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        for call in (mesh.list, lambda: mesh.acquire('host'), lambda: box.exec('x')):\n"
        "            try: call()\n"
        "            except Exception as error: say(error)\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "async def main():\n"
        "    async with sandmesh.connect() as mesh:\n"
        "        box = mesh.sandbox('sb-x')\n"
        "        child = os.fork()\n"
        "        if child == 0:\n"
        "            for call in (mesh.list(), mesh.acquire('host'), box.exec('x')):\n"
        "                try: await call\n"
        "                except Exception as error: say(error)\n"
        "            os._exit(0)\n"
        "        os.waitpid(child, 0)\n"
        "asyncio.run(main())\n",
    )
    said = "ConnectionError this connection is of the process that forked this one: conn"
    assert [first_line(program) for _ in range(6)] == [said] * 6
    assert program.wait(30) == 0


def test_a_connection_of_another_loop_is_told_as_that(backend: Backend) -> None:
    async def connect() -> sandmesh.Mesh:
        return await backend.connect()

    async def use() -> None:
        with pytest.raises(sandmesh.ConnectionError, match="another event loop"):
            await mesh.list()
        with pytest.raises(sandmesh.ConnectionError, match="another event loop"):
            await mesh.acquire("host")

    mesh = asyncio.run(connect())
    asyncio.run(use())


def test_the_twins_have_the_same_names() -> None:
    sync = {"close", "each"}
    for name in sandmesh.sync.__all__:
        twin, model = getattr(sandmesh.sync, name), getattr(sandmesh, name)
        if isinstance(model, type):
            names = {each for each in vars(model) if not each.startswith("_")}
            assert names <= {each for each in vars(twin) if not each.startswith("_")} | sync, name
