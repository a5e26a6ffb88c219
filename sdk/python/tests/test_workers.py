"""The processes that these tests run in."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

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


def test_a_test_that_hangs_or_kills_its_process_is_one_failure_and_leaves_no_server(tmp_path: Path) -> None:
    (tmp_path / "test_ill.py").write_text(TESTS)
    tests = str(Path(__file__).parent)
    settings = ["-c", str(ROOT / "sdk/python/pyproject.toml"), "--rootdir", ".", "-o", "faulthandler_timeout=15"]
    plugins = ["-p", "no:cacheprovider", "-p", "conftest", "-n", "1", "--dist", "worksteal"]
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", *settings, *plugins, "test_ill.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([tests, os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "2 failed, 1 passed" in ran.stdout.splitlines()[-1], ran.stdout + ran.stderr
    for name in ("test_dies", "test_hangs"):
        assert f"crashed while running 'test_ill.py::{name}'" in ran.stdout
    for name in ("died", "hung"):
        url = (tmp_path / name).read_text()
        until("its server is gone", lambda url=url: not is_served(url))
