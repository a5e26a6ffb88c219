"""The processes that these tests run in."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from conftest import ROOT, until

TESTS = """
import os, pathlib, signal, time

def test_dies(shared_backend):
    pathlib.Path("died").write_text(shared_backend.url)
    os.kill(os.getpid(), signal.SIGKILL)

def test_hangs(shared_backend):
    pathlib.Path("hung").write_text(shared_backend.url)
    time.sleep(3600)

def test_is_well():
    pass
"""


def is_served(url: str) -> bool:
    address = urlsplit(url)
    with socket.socket() as asking:
        return asking.connect_ex((address.hostname, address.port)) == 0


INTERRUPTED = """
import signal, subprocess, sys
import pytest

INTERRUPT = "import signal; signal.raise_signal(signal.SIGINT)"

def test_is_interrupted():
    with pytest.raises(KeyboardInterrupt):
        exec(INTERRUPT)

def test_its_child_is_interrupted():
    assert subprocess.run([sys.executable, "-c", INTERRUPT], capture_output=True).returncode == -signal.SIGINT
"""


def run_tests(folder: Path, source: str, *options: str, begin: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    """As ``test`` runs these, in processes of their own. ``begin``: a command that runs the one behind it."""
    (folder / "test_ill.py").write_text(source)
    tests = str(Path(__file__).parent)
    settings = ["-c", str(ROOT / "sdk/python/pyproject.toml"), "--rootdir", ".", "-o", "faulthandler_timeout=15"]
    plugins = ["-p", "no:cacheprovider", "-p", "conftest", "--dist", "worksteal"]
    return subprocess.run(
        [*begin, sys.executable, "-m", "pytest", *settings, *plugins, *options, "test_ill.py"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_test_that_hangs_or_kills_its_process_is_one_failure_and_leaves_no_server(tmp_path: Path) -> None:
    ran = run_tests(tmp_path, TESTS, "-n", "1")
    assert "2 failed, 1 passed" in ran.stdout.splitlines()[-1], ran.stdout + ran.stderr
    for name in ("test_dies", "test_hangs"):
        assert f"crashed while running 'test_ill.py::{name}'" in ran.stdout
    for name in ("died", "hung"):
        url = (tmp_path / name).read_text()
        until("its server is gone", lambda url=url: not is_served(url))


@pytest.mark.parametrize("workers", ["0", "1"])
def test_tests_are_interrupted_also_where_who_began_them_ignores_that(tmp_path: Path, workers: str) -> None:
    # As a script's shell begins what it does not wait for, without job control.
    ignoring = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]
    ran = run_tests(tmp_path, INTERRUPTED, "-n", workers, begin=ignoring)
    assert "2 passed" in ran.stdout.splitlines()[-1], ran.stdout + ran.stderr
