"""Files with holes: where this machine's are, and how an archive tells them (pax 1.0, which tarfile reads)."""

from __future__ import annotations

import errno
import io
import os
import tarfile
from typing import IO, cast

from ..errors import FileError

# Of one file, as the daemon takes them; of one in more pieces the rest goes whole.
_MAX_REGIONS = 131_072
_DISK_BLOCK = 512
_PART = 1024 * 1024

Region = tuple[int, int]
"""Offset and length."""


def has_holes(found: os.stat_result) -> bool:
    return found.st_blocks * _DISK_BLOCK < found.st_size


def regions_of(file: IO[bytes], found: os.stat_result) -> list[Region] | None:
    """Those that are no holes; one of no length ends a file that ends in a hole. None where it has none, or its file
    system does not tell."""
    size = found.st_size
    if not has_holes(found):
        return None
    regions: list[Region] = []
    end, fd = 0, file.fileno()
    try:
        while end < size and len(regions) < _MAX_REGIONS - 1:
            try:
                offset = os.lseek(fd, end, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    return None
                break
            if offset >= size:
                break
            end = min(os.lseek(fd, offset, os.SEEK_HOLE), size)
            regions.append((offset, end - offset))
    finally:
        os.lseek(fd, 0, os.SEEK_SET)
    if len(regions) == _MAX_REGIONS - 1:
        regions.append((end, size - end))
    elif end < size:
        regions.append((size, 0))
    return None if regions == [(0, size)] else regions


def add_sparse(tar: tarfile.TarFile, entry: tarfile.TarInfo, file: IO[bytes], regions: list[Region]) -> None:
    """The entry with its map, and what stands in these regions of the file."""
    numbers = [len(regions), *(number for region in regions for number in region)]
    lines = "".join(f"{number}\n" for number in numbers).encode()
    lines += bytes(-len(lines) % tarfile.BLOCKSIZE)
    entry.pax_headers = {
        "GNU.sparse.major": "1",
        "GNU.sparse.minor": "0",
        "GNU.sparse.name": entry.name,
        "GNU.sparse.realsize": str(entry.size),
    }
    # Who knows nothing of holes unpacks it under a name that says so.
    entry.name = "GNUSparseFile.0/entry"
    entry.size = len(lines) + sum(length for _offset, length in regions)
    tar.addfile(entry, _Stored(lines, file, regions))  # type: ignore[arg-type]


class _Stored:
    """The content of a sparse entry: its map, and then its regions."""

    def __init__(self, lines: bytes, file: IO[bytes], regions: list[Region]) -> None:
        self._lines = io.BytesIO(lines)
        self._file = file
        self._regions = list(reversed(regions))

    def read(self, size: int) -> bytes:
        data = self._lines.read(size)
        while len(data) < size and self._regions:
            offset, length = self._regions.pop()
            self._file.seek(offset)
            part = self._file.read(min(length, size - len(data)))
            if not part and length > 0:
                break
            if len(part) < length:
                self._regions.append((offset + len(part), length - len(part)))
            data += part
        return data


def write_sparse(entry: tarfile.TarInfo, content: IO[bytes], file: IO[bytes]) -> None:
    """The entry's regions, each in its place, with holes between them. Raises FileError where they are none."""
    end = 0
    # Typeshed has another type of it.
    regions = cast("list[Region]", entry.sparse or [])
    for offset, length in regions:
        if offset < end or length < 0 or offset + length > entry.size:
            raise FileError(
                f"the archive's sparse entry {entry.name!r} has regions that overlap or lead beyond its size",
                reason="EINVAL",
            )
        end = offset + length
    for offset, length in regions:
        content.seek(offset)
        file.seek(offset)
        while length > 0:
            part = content.read(min(length, _PART))
            if not part:
                raise FileError(f"the archive's sparse entry {entry.name!r} is cut off", reason="EINVAL")
            file.write(part)
            length -= len(part)
    file.truncate(entry.size)
