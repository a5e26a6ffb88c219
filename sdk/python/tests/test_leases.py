"""Acquire, renew, release and the ways out, against a real server and a real pool."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time

import pytest
from conftest import Backend, until, until_async

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


def run_program(backend: Backend, source: str, **environment: str) -> subprocess.Popen[str]:
    env = {**backend.environment, **environment}
    return subprocess.Popen([sys.executable, "-c", source], env=env, stdout=subprocess.PIPE, text=True)


def first_line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


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
    "way",
    [
        "pass",
        "raise SystemExit(3)",
        "raise ValueError('a bug of the trainer')",
    ],
)
def test_a_process_that_ends_without_closing_leaves_nothing_before_it_is_gone(backend: Backend, way: str) -> None:
    program = run_program(
        backend,
        "import sandmesh\n"
        "mesh = sandmesh.sync.connect()\n"
        "boxes = [mesh.acquire('host') for _ in range(3)]\n"
        f"print(len(boxes), flush=True)\n{way}\n",
    )
    assert first_line(program) == "3"
    assert program.wait(30) is not None
    assert backend.made == []


def test_an_async_program_that_forgets_to_close_leaves_nothing(backend: Backend) -> None:
    program = run_program(
        backend,
        "import asyncio, sandmesh\n"
        "async def main():\n"
        "    mesh = await sandmesh.connect()\n"
        "    print((await mesh.acquire('host')).id, flush=True)\n"
        "asyncio.run(main())\n",
    )
    assert first_line(program)
    assert program.wait(30) is not None
    assert backend.made == []


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
    with subprocess.Popen(
        [sys.executable, "-c", ACQUIRING + program % way],
        env=backend.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
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
    argv = [sys.executable, "-c", f"{EXECUTING}asyncio.run({program}())"]
    with subprocess.Popen(
        argv, env=local.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert first_line(process) == "running"
            process.send_signal(signal.SIGTERM)
            assert process.communicate(timeout=30) == ("", "")
            assert process.returncode == 143
        finally:
            process.kill()
    assert local.made == []


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
    program = run_program(
        backend,
        "import asyncio, sandmesh\n"
        "async def main():\n"
        "    mesh = await sandmesh.connect()\n"
        "    await asyncio.gather(mesh.acquire('host'), mesh.run('whole').acquire('host'))\n"
        "    closing = asyncio.create_task(mesh.close())\n"
        "    while mesh._closing is None:\n"
        "        await asyncio.sleep(0)\n"
        "    await asyncio.sleep(0)  # it has begun, and sent nothing\n"
        "    print('closing', flush=True)\n"
        "asyncio.run(main())\n",
    )
    assert first_line(program) == "closing"
    assert program.wait(30) == 0
    assert backend.made == []


def test_what_a_close_could_not_release_is_released_at_the_exit_where_the_server_is_back(own_backend: Backend) -> None:
    program = run_program(
        own_backend,
        "import sandmesh.closing, time\n"
        "sandmesh.closing.ABSENT_S = 1.0\n"
        "mesh = sandmesh.sync.connect()\n"
        "mesh.acquire('host')\n"
        "renewer = mesh._mesh._renewer\n"
        "while renewer._caller is None: time.sleep(0.01)\n"
        "print('holding', flush=True)\n"
        "while renewer._caller.link.connected: time.sleep(0.01)\n"
        "try: mesh.close()\n"
        "except sandmesh.ConnectionError: print('told', flush=True)\n"
        "while not renewer._caller.link.connected: time.sleep(0.01)\n",
    )
    assert first_line(program) == "holding"
    own_backend.order("kill_server")
    assert first_line(program) == "told"
    own_backend.order("restart_server")
    assert program.wait(40) == 0
    assert own_backend.made == []


def test_an_exit_while_a_server_that_has_a_name_is_away_releases_once_it_is_back(own_backend: Backend) -> None:
    url = own_backend.environment["SANDMESH_URL"].replace("127.0.0.1", "localhost")
    assert "localhost" in url
    program = run_program(
        own_backend,
        "import atexit, time, sandmesh\n"
        "mesh = sandmesh.sync.connect()\n"
        "mesh.acquire('host')\n"
        "renewer = mesh._mesh._renewer\n"
        "while renewer._caller is None: time.sleep(0.01)\n"
        "print('holding', flush=True)\n"
        "while renewer._caller.link.connected: time.sleep(0.01)\n"
        "atexit.register(print, 'exiting', flush=True)  # before the release: the last one first\n",
        SANDMESH_URL=url,
    )
    assert first_line(program) == "holding"
    own_backend.order("kill_server")
    assert first_line(program) == "exiting"
    own_backend.order("restart_server")
    assert program.wait(40) == 0
    assert own_backend.made == []


def test_ctrl_c_in_a_blocking_step_that_is_the_last_of_the_block_leaves_nothing(backend: Backend) -> None:
    program = run_program(
        backend,
        "import asyncio, signal, sandmesh\n"
        "async def main():\n"
        "    async with sandmesh.connect() as mesh:\n"
        "        await asyncio.gather(mesh.acquire('host'), mesh.run('whole').acquire('host'))\n"
        "        print('holding', flush=True)\n"
        "        signal.raise_signal(signal.SIGINT)  # asyncio cancels the end of the block\n"
        "asyncio.run(main())\n",
    )
    assert first_line(program) == "holding"
    assert program.wait(30) == -signal.SIGINT
    assert backend.made == []


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


def test_a_forked_child_does_not_release_what_its_parent_holds(backend: Backend) -> None:
    program = run_program(
        backend,
        "import os, sys, sandmesh\n"
        "with sandmesh.sync.connect() as mesh:\n"
        "    box = mesh.acquire('host')\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        sys.exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "    print([view.state for view in mesh.list()], flush=True)\n",
    )
    assert first_line(program) == "['leased']"
    assert program.wait(30) is not None


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
