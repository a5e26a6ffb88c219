"""Files with holes, of real sandboxes and of archives."""

from __future__ import annotations

import errno
import io
import os
import tarfile
from pathlib import Path

import pytest
from conftest import Backend

import sandmesh
from sandmesh._wire.unpack import Unpacking

MIB, GIB, PAGE = 1 << 20, 1 << 30, 4096


def make_sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.seek(GIB)
        file.write(b"d" * MIB)
        file.seek(2 * GIB)
        file.write(b"end")
        file.truncate(3 * GIB)


def content(path: Path) -> tuple[int, dict[int, bytes]]:
    """Its size, and by their offsets all pages that are not zeros: holes are, and reading GiB of them takes seconds."""
    pages, at = {}, 0
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        while at < size:
            try:
                at = os.lseek(file.fileno(), at, os.SEEK_DATA) // PAGE * PAGE
            except OSError as error:
                assert error.errno == errno.ENXIO, "there are only holes from here on"
                break
            page = os.pread(file.fileno(), PAGE, at)
            if page.strip(b"\0"):
                pages[at] = page
            at += PAGE
    return size, pages


@pytest.mark.limit(120)
async def test_holes_are_copied_as_holes_both_ways(local: Backend, tmp_path: Path) -> None:
    source = tmp_path / "from"
    source.mkdir()
    make_sparse(source / "big")
    (source / "link").symlink_to("big")
    blocks = (source / "big").stat().st_blocks
    size, pages = content(source / "big")
    assert (size, len(pages)) == (3 * GIB, MIB // PAGE + 1)
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        await box.files.upload(source, "/tmp/to")
        await box.files.upload(source / "link", "/tmp/alone/big")
        for path in ("/tmp/to/big", "/tmp/alone/big"):
            found = await box.files.stat(path)
            assert found.size == 3 * GIB
            assert found.allocated is not None
            assert found.allocated <= blocks * 512
        await box.files.download("/tmp/to", tmp_path / "back")
        await box.files.download("/tmp/alone/big", tmp_path / "one")
    for copied in (tmp_path / "back/big", tmp_path / "one"):
        assert copied.stat().st_blocks <= blocks
        assert content(copied) == (size, pages)


def archive_of(sparse: str, content: bytes, size: int = 100) -> io.BytesIO:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        entry = tarfile.TarInfo("evil")
        entry.size = len(content)
        if sparse:
            entry.pax_headers = {"GNU.sparse.map": sparse, "GNU.sparse.size": str(size)}
        else:
            entry.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(size)}
        tar.addfile(entry, io.BytesIO(content))
    archive.seek(0)
    return archive


@pytest.mark.parametrize(
    ("sparse", "content"),
    [
        ("0,20,10,20", bytes(512)),
        ("50,10,0,10", bytes(512)),
        ("90,20", bytes(512)),
        ("-5,5", bytes(512)),
        ("0,x", bytes(512)),
        ("", b"many\n".ljust(512, b"\0")),
        ("", b"999999\n0\n5\n".ljust(512, b"\0")),
        ("", b"1\n-1\n5\n".ljust(512, b"\0")),
    ],
)
def test_a_hostile_map_of_holes_is_refused(sparse: str, content: bytes, tmp_path: Path) -> None:
    with pytest.raises(sandmesh.FileError):
        Unpacking(os.fsencode(tmp_path), new=False).take(archive_of(sparse, content))
