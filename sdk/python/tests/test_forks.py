"""Processes that a program makes: each releases what it acquired itself, and nothing of its parent's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Backend, run_to_its_end

WORKERS = """
import asyncio, multiprocessing, signal, sys
from concurrent.futures import ProcessPoolExecutor
import sandmesh

def sync(run):
    sandmesh.sync.connect(run=run).acquire("host")

def asynchronous(run):
    async def main():
        await (await sandmesh.connect(run=run)).acquire("host")
    asyncio.run(main())

def returns(hold, tasks, results):
    hold(f"{hold.__name__}-returns")

def exits(hold, tasks, results):
    hold(f"{hold.__name__}-exits")
    sys.exit(3)

def serves(hold, tasks, results):
    for _task in iter(tasks.get, None):
        hold(f"{hold.__name__}-serves")
        results.put("done")

def terminated(hold, tasks, results):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    hold(f"{hold.__name__}-terminated")
    results.put("held")
    signal.pause()

def main(context):
    with sandmesh.sync.connect(run="parent") as mesh, ProcessPoolExecutor(2, context) as pool:
        mesh.acquire("host")
        list(pool.map(sync, ["pool", "pool"]))
        list(pool.map(asynchronous, ["pool", "pool"]))
        started = []
        for work in (returns, exits, serves, terminated):
            for each in (sync, asynchronous):
                tasks, results = context.Queue(), context.Queue()
                process = context.Process(target=work, args=(each, tasks, results), daemon=True)
                process.start()
                started.append((work, process, tasks, results))
        for work, process, tasks, results in started:
            if work is serves:
                tasks.put("one")
                results.get(timeout=50)
                tasks.put(None)
            if work is terminated:
                results.get(timeout=50)
                process.terminate()
            process.join()
            print(work.__name__, process.exitcode, flush=True)
        pool.shutdown()
        print(sorted({view.run for view in mesh.list()}), flush=True)

if __name__ == "__main__":
    main(multiprocessing.get_context(sys.argv[1]))
"""


@pytest.mark.parametrize("start", ["fork", "forkserver"])
def test_a_worker_that_ends_in_order_leaves_nothing_of_its_own_and_its_parents_lives_on(
    backend: Backend, tmp_path: Path, start: str
) -> None:
    program = tmp_path / "workers.py"
    program.write_text(WORKERS)
    ran = subprocess.run(
        [sys.executable, str(program), start], env=backend.environment, capture_output=True, text=True, timeout=60
    )
    ended = [line for line in ("returns 0", "exits 3", "serves 0", "terminated 143") for _api in range(2)]
    assert ran.stdout.splitlines() == [*ended, "['parent']"], ran.stderr
    assert ran.stderr == ""
    assert backend.made == []


def test_a_forked_child_does_not_release_what_its_parent_holds(backend: Backend) -> None:
    run_to_its_end(
        backend,
        "import os, sys, sandmesh\n"
        "with sandmesh.sync.connect() as mesh:\n"
        "    box = mesh.acquire('host')\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        sys.exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "    print([view.state for view in mesh.list()], flush=True)\n",
        says="['leased']",
    )
