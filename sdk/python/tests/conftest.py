"""A real nats-server and a real pool for the tests, and async tests without a plugin."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sandmesh

ROOT = Path(__file__).parents[3]
BUN = os.environ.get("BUN", str(ROOT / "node_modules" / ".bin" / "bun"))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs ``async def`` tests on a loop of their own; a test that hangs fails after a minute."""
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    limit = pyfuncitem.get_closest_marker("limit")

    async def run() -> None:
        await asyncio.wait_for(function(**arguments), limit.args[0] if limit else 60)

    asyncio.run(run())
    return True


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "limit(seconds): how long an async test may take")
    # As a script's shell leaves it to what it does not wait for: tests interrupt themselves and their children.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Backend:
    """test/python-mesh.ts, which ends with its stdin."""

    def __init__(self, provider: str = "double") -> None:
        self.provider = provider
        self.process = subprocess.Popen(
            [BUN, str(ROOT / "test" / "python-mesh.ts"), provider],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        hello = self._read()
        self.url: str = hello["url"]
        self.credentials: str = hello["credentials"]

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the mesh did not start"
        answer: dict[str, Any] = json.loads(line)
        assert "error" not in answer, answer
        return answer

    def order(self, what: str, **more: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self.process.stdin.flush()
        return self._read()

    @property
    def made(self) -> list[str]:
        """Sandboxes that the provider has now."""
        return list(self.order("made")["made"])

    @property
    def environment(self) -> dict[str, str]:
        """For a program that uses the SDK."""
        path = os.pathsep.join([str(ROOT / "sdk" / "python"), os.environ.get("PYTHONPATH", "")])
        return {
            **os.environ,
            "SANDMESH_URL": self.url,
            "SANDMESH_CREDS": self.credentials,
            "PYTHONPATH": path,
        }

    def connect(self, **options: Any) -> Any:
        return sandmesh.connect(self.url, self.credentials, **options)

    def connect_sync(self, **options: Any) -> sandmesh.sync.Mesh:
        return sandmesh.sync.connect(self.url, self.credentials, **options)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(30)
        finally:
            self.process.kill()


@pytest.fixture(scope="session")
def shared_backend() -> Iterator[Backend]:
    backend = Backend()
    yield backend
    backend.close()


@pytest.fixture
def backend(shared_backend: Backend) -> Iterator[Backend]:
    """Shared by all tests; each must leave nothing in it."""
    yield shared_backend
    shared_backend.order("script")
    shared_backend.order("proceed")
    until("nothing is left", lambda: shared_backend.made == [])


@pytest.fixture
def own_backend() -> Iterator[Backend]:
    """For tests that end the server."""
    backend = Backend()
    yield backend
    backend.close()


@pytest.fixture(scope="session")
def simulated() -> Iterator[Backend]:
    """Virtual sandboxes: the real endpoint, nothing real behind it."""
    backend = Backend("simulated")
    yield backend
    backend.close()


@pytest.fixture(scope="session")
def shared_local() -> Iterator[Backend]:
    """Real sandboxes with the real daemon, of the image ``host``."""
    if os.geteuid() != 0:
        pytest.skip("real sandboxes are tested as root")
    backend = Backend("local")
    yield backend
    backend.close()


@pytest.fixture
def local(shared_local: Backend) -> Iterator[Backend]:
    """Shared by all tests; each must have left nothing in it when it is over."""
    yield shared_local
    assert shared_local.made == []


def until(what: str, holds: Callable[[], object], within: float = 20) -> None:
    """Waits for a condition, looking often."""
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, f"not within {within} s: {what}"
        time.sleep(0.02)


async def until_async(what: str, holds: Callable[[], object], within: float = 20) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, f"not within {within} s: {what}"
        await asyncio.sleep(0.02)


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def run_program(backend: Backend, source: str, **pipes: int) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", source]
    return subprocess.Popen(argv, env=backend.environment, stdout=subprocess.PIPE, text=True, **pipes)


def first_line(program: subprocess.Popen[str]) -> str:
    assert program.stdout is not None
    return program.stdout.readline().strip()


def run_to_its_end(backend: Backend, source: str, *, says: str, status: int = 0) -> None:
    """A program that says so, ends so, and has left nothing by then."""
    program = run_program(backend, source)
    assert first_line(program) == says
    assert program.wait(30) == status
    assert backend.made == []
