"""The ways out of a process, with real ones: nothing that it held, or was about to, is left."""

from __future__ import annotations

import signal
import time
from subprocess import PIPE

import pytest
from conftest import Backend, first_line, run_program, run_to_its_end, until


def test_a_killed_process_leaves_nothing_when_its_lease_lapses(backend: Backend) -> None:
    program = run_program(
        backend,
        "import sandmesh, time\n"
        "mesh = sandmesh.sync.connect(lease=1)\n"
        "print(mesh.acquire('host').id, flush=True)\n"
        "time.sleep(60)\n",
    )
    try:
        sandbox = first_line(program)
        assert backend.made == [sandbox]
        # It is renewed for longer than its lease.
        time.sleep(2.5)
        assert len(backend.made) == 1
    finally:
        program.kill()
        program.wait()
    until("the lease lapsed", lambda: backend.made == [])


@pytest.mark.parametrize(
    ("way", "status"),
    [
        ("pass", 0),
        ("raise SystemExit(3)", 3),
        ("raise ValueError('a bug of the trainer')", 1),
    ],
)
def test_a_process_that_ends_without_closing_leaves_nothing_before_it_is_gone(
    backend: Backend, way: str, status: int
) -> None:
    run_to_its_end(
        backend,
        "import sandmesh\n"
        "mesh = sandmesh.sync.connect()\n"
        "boxes = [mesh.acquire('host') for _ in range(3)]\n"
        f"print(len(boxes), flush=True)\n{way}\n",
        says="3",
        status=status,
    )


def test_an_async_program_that_forgets_to_close_leaves_nothing(backend: Backend) -> None:
    run_to_its_end(
        backend,
        "import asyncio, sandmesh\n"
        "async def main():\n"
        "    mesh = await sandmesh.connect()\n"
        "    await mesh.acquire('host')\n"
        "    print('holding', flush=True)\n"
        "asyncio.run(main())\n",
        says="holding",
    )


ACQUIRING = """
import asyncio, contextlib, signal, sys, threading, sandmesh
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

def end(way):
    if way == "exit":
        sys.exit(3)
    if way == "exception":
        raise ValueError("a bug of the trainer")
    signal.raise_signal(getattr(signal, way))

async def acquire_in_tasks(mesh, way):
    openings = [mesh.acquire("host"), mesh.acquire("host", run="named"), mesh.run("whole").acquire_many(2, "host")]
    tasks = [asyncio.create_task(opening) for opening in openings]
    print("acquiring", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    end(way)
    await asyncio.gather(*tasks)  # asyncio makes a SIGINT a cancellation

def acquire_in_threads(mesh, way):
    def each(acquire, *what, **more):
        with contextlib.suppress(sandmesh.SandmeshError):
            acquire(*what, **more)
    # Of the many two are not even asked for when the process ends.
    for what in (
        lambda: each(mesh.acquire, "host"),
        lambda: each(mesh.acquire, "host", run="named"),
        lambda: each(mesh.run("whole").acquire_many, 4, "host", at_once=2),
    ):
        threading.Thread(target=what, daemon=True).start()
    print("acquiring", flush=True)
    sys.stdin.readline()
    end(way)

async def main(way):
    await acquire_in_tasks(await sandmesh.connect(), way)

async def main_with(way):
    async with sandmesh.connect() as mesh:
        await acquire_in_tasks(mesh, way)

def sync(way):
    acquire_in_threads(sandmesh.sync.connect(), way)

def sync_with(way):
    with sandmesh.sync.connect() as mesh:
        acquire_in_threads(mesh, way)
"""
ENDS = {"exit": 3, "exception": 1, "SIGTERM": 143, "SIGINT": -signal.SIGINT}


@pytest.mark.parametrize("way", ENDS)
@pytest.mark.parametrize(
    "program", ["asyncio.run(main(%r))", "asyncio.run(main_with(%r))", "sync(%r)", "sync_with(%r)"]
)
def test_what_is_being_acquired_is_not_left_by_a_process_that_ends(backend: Backend, program: str, way: str) -> None:
    backend.order("script", boot="never", remove_failures=2)
    with run_program(backend, ACQUIRING + program % way, stdin=PIPE, stderr=PIPE) as process:
        try:
            assert first_line(process) == "acquiring"
            until("they are created", lambda: len(backend.made) == 4)
            _, said = process.communicate("now\n", timeout=30)
            assert process.returncode == ENDS[way], said
            assert backend.made == []
        finally:
            process.kill()
    # asyncio complains of what is left in tasks; of those that an exception of the program's own left, it is to.
    assert "destroyed" not in said
    if way != "exception":
        assert "was never" not in said
        assert ("Traceback" in said) == (way == "SIGINT")
    with backend.connect_sync() as mesh:
        assert mesh.status()["queued"] == 0


EXECUTING = """
import asyncio, signal, sys, sandmesh
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

async def wait_in(box):
    running = [asyncio.create_task(box.exec("sleep 600")) for _ in range(4)]
    while sum(command.running for command in await box.commands()) < 4:
        pass
    print("running", flush=True)
    await asyncio.gather(*running)

async def main():
    await wait_in(await (await sandmesh.connect()).acquire("host"))

async def main_with():
    async with sandmesh.connect() as mesh, mesh.acquire("host") as box:
        await wait_in(box)

async def main_within():
    async with sandmesh.connect() as mesh, mesh.run("whole") as run, run.acquire("host") as box:
        async with box.shell(), await box.terminal(), await box.forward(1), box.stream("sleep 600"):
            await wait_in(box)
"""


@pytest.mark.parametrize("program", ["main", "main_with", "main_within"])
def test_a_signal_whose_handler_exits_ends_a_program_that_waits_for_commands_at_once_and_without_complaints(
    local: Backend, program: str
) -> None:
    with run_program(local, f"{EXECUTING}asyncio.run({program}())", stderr=PIPE) as process:
        try:
            assert first_line(process) == "running"
            process.send_signal(signal.SIGTERM)
            assert process.communicate(timeout=30) == ("", "")
            assert process.returncode == 143
        finally:
            process.kill()
    assert local.made == []


CUT_OFF = """
import atexit, time, sandmesh
mesh = sandmesh.sync.connect()
mesh.acquire("host")
renewer = mesh._mesh._renewer
while renewer._caller is None: time.sleep(0.01)
print("holding", flush=True)
while renewer._caller.link.connected: time.sleep(0.01)
"""


def end_cut_off(own_backend: Backend, end: str, *, says: str) -> None:
    """A program that holds a sandbox, ends so while the server is away, which is back once it ``says`` so, and has left
    nothing by its end."""
    program = run_program(own_backend, CUT_OFF + end)
    assert first_line(program) == "holding"
    own_backend.order("kill_server")
    assert first_line(program) == says
    own_backend.order("restart_server")
    assert program.wait(40) == 0
    assert own_backend.made == []


def test_an_exit_while_a_server_that_has_a_name_is_away_releases_once_it_is_back(own_backend: Backend) -> None:
    own_backend.url = own_backend.url.replace("127.0.0.1", "localhost")
    assert "localhost" in own_backend.url
    # Before the release: the last one first.
    end_cut_off(own_backend, "atexit.register(print, 'exiting', flush=True)", says="exiting")


def test_what_a_close_could_not_release_is_released_at_the_exit_where_the_server_is_back(own_backend: Backend) -> None:
    end_cut_off(
        own_backend,
        "sandmesh.closing.ABSENT_S = 1.0\n"
        "try: mesh.close()\n"
        "except sandmesh.ConnectionError: print('told', flush=True)\n"
        "while not renewer._caller.link.connected: time.sleep(0.01)\n",
        says="told",
    )


def test_ctrl_c_in_a_blocking_step_that_is_the_last_of_the_block_leaves_nothing(backend: Backend) -> None:
    run_to_its_end(
        backend,
        "import asyncio, signal, sandmesh\n"
        "async def main():\n"
        "    async with sandmesh.connect() as mesh:\n"
        "        await asyncio.gather(mesh.acquire('host'), mesh.run('whole').acquire('host'))\n"
        "        print('holding', flush=True)\n"
        "        signal.raise_signal(signal.SIGINT)  # asyncio cancels the end of the block\n"
        "asyncio.run(main())\n",
        says="holding",
        status=-signal.SIGINT,
    )


def test_ctrl_c_in_the_sync_twin_leaves_nothing(backend: Backend) -> None:
    backend.order("script", boot="never")
    program = run_program(
        backend,
        "import sandmesh\n"
        "with sandmesh.sync.connect() as mesh:\n"
        "    print('acquiring', flush=True)\n"
        "    mesh.acquire('host')\n",
    )
    assert first_line(program) == "acquiring"
    until("it was created", lambda: len(backend.made) == 1)
    program.send_signal(signal.SIGINT)
    assert program.wait(30) != 0
    until("it is reclaimed", lambda: backend.made == [])
