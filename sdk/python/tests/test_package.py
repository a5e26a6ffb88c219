"""What ``pip install`` makes of a checkout."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from conftest import ROOT


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_wheel_has_all_of_the_package_and_nothing_is_left_where_it_was_made(tmp_path: Path) -> None:
    checkout, made = tmp_path / "checkout", tmp_path / "made"
    shutil.copytree(ROOT / "sdk/python", checkout, ignore=shutil.ignore_patterns("__pycache__"))
    before = files(checkout)
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps"]
    # With what ``test`` has installed, so that nothing is fetched.
    subprocess.run([*pip, "--no-build-isolation", "--wheel-dir", str(made), str(checkout)], check=True, timeout=60)
    assert files(checkout) == before
    (wheel,) = made.iterdir()
    with ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("sandmesh/")}
    assert packed == {name for name in before if name.startswith("sandmesh/")}
    assert {"sandmesh/py.typed", "sandmesh/contract.json"} <= packed
