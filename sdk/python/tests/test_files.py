"""Files of real sandboxes, one at a time."""

from __future__ import annotations

import asyncio
import os
import tarfile
from pathlib import Path

import pytest
from conftest import Backend

import sandmesh
from sandmesh._wire.tree import unpack_tree


async def test_looking_into_files(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        files = box.files
        await files.write("/tmp/t/a.py", "x = 1\n")
        await files.write("/tmp/t/deep/b.py", "y = 2\nX = 3\n", mode=0o600)
        empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        await files.write("/tmp/t/empty", b"")
        assert await files.sha256("/tmp/t/empty") == empty
        await files.chmod("/tmp/t/empty", 0o751)
        await files.chown("/tmp/t/empty", uid=1234)
        info = await files.stat("/tmp/t/empty")
        assert (info.mode, info.uid) == (0o751, 1234)
        assert await files.glob("**/*.py", "/tmp/t") == ["a.py", "deep/b.py"]
        found = await files.search("x =", "/tmp/t", ignore_case=True)
        assert [(match.path, match.line, match.text) for match in found] == [
            ("a.py", 1, "x = 1"),
            ("deep/b.py", 2, "X = 3"),
        ]
        with pytest.raises(sandmesh.FileError) as failed:
            await files.sha256("/tmp/t/nothing")
        assert failed.value.reason == "ENOENT"


async def test_a_watch_tells_what_changes(local: Backend) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        await box.files.mkdir("/tmp/w")
        changes = box.files.watch("/tmp/w")
        first = asyncio.ensure_future(anext(changes))
        # From when on it watches is not told, so the change is made until it is.
        while not first.done():
            await box.files.write("/tmp/w/f", "x")
        assert first.result().path == "f"
        await box.exec("rm /tmp/w/f")
        async for change in changes:
            if change.kind == "removed":
                assert change.path == "f"
                break
        await changes.aclose()


async def test_files(local: Backend, tmp_path: Path) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        files = box.files
        assert await files.write("/tmp/a/b", "hällo", mode=0o640) == 6
        assert await files.read_text("/tmp/a/b") == "hällo"
        assert await files.read("/tmp/a/b", offset=1, length=2) == "ä".encode()
        info = await files.stat("/tmp/a/b")
        assert (info.type, info.size, info.mode, info.is_file) == ("file", 6, 0o640, True)
        await files.write("/tmp/a/b", b"!", append=True)
        await files.mkdir("/tmp/a/c/d")
        await files.rename("/tmp/a/b", "/tmp/a/e")
        assert [os.path.basename(entry.path) for entry in await files.list("/tmp/a")] == ["c", "e"]
        assert await files.exists("/tmp/a/e") and not await files.exists("/tmp/a/b")
        with pytest.raises(sandmesh.FileError) as caught:
            await files.read("/tmp/none")
        assert caught.value.reason == "ENOENT"
        with pytest.raises(sandmesh.FileError):
            await files.remove("/tmp/a")
        await files.remove("/tmp/a", recursive=True)
        await files.remove("/tmp/a", missing_ok=True)
        big = os.urandom(3_000_000)
        assert await files.write("/tmp/big", big) == len(big)
        assert await files.read("/tmp/big") == big
        assert await files.read("/tmp/big", offset=1_000_000, length=1_500_000) == big[1_000_000:2_500_000]
        assert (await files.read("/proc/self/status")).startswith(b"Name:")
        longest = tmp_path / ("n" * 255)
        await files.download("/tmp/big", longest)
        assert longest.read_bytes() == big and os.listdir(tmp_path) == [longest.name]


async def test_this_machines_own_file_errors_are_of_the_same_class(local: Backend, tmp_path: Path) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        with pytest.raises(sandmesh.FileError) as caught:
            await box.files.upload(tmp_path / "missing", "/tmp/x")
        assert caught.value.reason == "ENOENT" and "on this machine" in str(caught.value)
        (tmp_path / "file").write_text("")
        with pytest.raises(sandmesh.FileError) as caught:
            await box.files.download("/etc/passwd", tmp_path / "file" / "x")
        assert caught.value.reason in ("ENOTDIR", "EEXIST")


async def test_a_new_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    archive = tmp_path / "a.tar"
    with tarfile.open(archive, "w") as tar:
        tar.addfile(tarfile.TarInfo("fine"))
        tar.addfile(tarfile.TarInfo("../outside"))
    place = tmp_path / "place"
    place.mkdir()
    with archive.open("rb") as file, pytest.raises(sandmesh.FileError):
        unpack_tree(file, place / "new")
    assert os.listdir(place) == []
    with archive.open("rb") as file, pytest.raises(sandmesh.FileError):
        unpack_tree(file, place)
    assert os.listdir(place) == ["fine"]
