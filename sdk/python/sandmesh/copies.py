"""Files and folders between this machine and a sandbox: ``box.files.upload`` and ``download``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import tempfile
from collections.abc import AsyncGenerator, Callable
from typing import IO, TYPE_CHECKING

from ._wire.arguments import check_callbacks
from ._wire.lost import may_be_lost
from ._wire.sparse import has_holes
from ._wire.special import is_by_descriptor, read_special, write_special
from ._wire.tree import became_shorter, local_errors, local_path, pack_as, pack_folder, shown, whole
from ._wire.unpack import Unpacking, unpack_file, unpack_new
from .errors import FileError, InvalidRequestError, NotFoundError, SandmeshError

if TYPE_CHECKING:
    from .files import Files, FileStat

Skipped = Callable[[str, int], None]
"""Told the path of each fifo, socket and device, which are left out, and how many those are, as far as is known. A
sandbox names no more than the first 64 KiB of them."""

_BLOCK = 1024 * 1024
# What was cut off is begun anew so often.
_TRIES = 4


async def upload(
    files: Files,
    local: object,
    remote: object,
    follow: bool,
    skipped: Skipped | None,
    partial: Callable[[], None] | None,
) -> None:
    check_callbacks(skipped=skipped, partial=partial)
    source, target = local_path(local), _remote(remote)
    by_descriptor = await asyncio.to_thread(is_by_descriptor, source)
    follow = follow or by_descriptor
    with local_errors(source):
        found = await asyncio.to_thread(os.stat if follow else os.lstat, source)
    kind = stat.S_IFMT(found.st_mode)
    text = _utf8(target)
    # Read to its end rather than copied as it stands: a fifo, and what a descriptor leads to, also a terminal or
    # /dev/null. Of a device that is named itself there may be no end.
    if kind == stat.S_IFIFO or (by_descriptor and kind == stat.S_IFCHR):
        if text is None:
            raise InvalidRequestError("path: must be UTF-8 for what is read of a pipe", field="path")
        await files.write(text, read_special(source, by_descriptor))
        return
    if kind not in (stat.S_IFDIR, stat.S_IFLNK, stat.S_IFREG):
        raise FileError(f"{shown(source)} is neither a file, a folder nor a pipe", reason="EINVAL")
    if kind == stat.S_IFLNK or text is None:
        folder, name = os.path.split(target.rstrip(b"/"))
        named = _utf8(folder or b".")
        if named is None:
            raise InvalidRequestError("path: only the last part may be other than UTF-8", field="path")
        path = await asyncio.to_thread(os.path.realpath, source) if follow else source
        await _send(files, named, lambda archive, tell: pack_as(name, path, archive, tell), skipped)
    elif kind == stat.S_IFDIR:
        await _send(files, text, lambda archive, tell: pack_folder(source, archive, tell), skipped, partial)
    else:
        if has_holes(found) and await _is_free(files, text):
            # Archives have holes, a write's bytes have none.
            into, base = os.path.split(text)
            real = await asyncio.to_thread(os.path.realpath, source)
            await _send(files, into or ".", lambda archive, tell: pack_as(base.encode(), real, archive, tell), skipped)
            return
        with local_errors(source):
            file = await asyncio.to_thread(open, source, "rb")
        with file:
            await files.write(text, _whole(file, source), mode=stat.S_IMODE(found.st_mode), mtime=found.st_mtime)


async def _is_free(files: Files, path: str) -> bool:
    """Nothing is there: what is has an owner and a mode, or leads elsewhere, which a write keeps."""
    try:
        await files.stat(path, follow=False)
    except FileError as error:
        return error.reason == "ENOENT" and not path.endswith("/")
    return False


async def _send(
    files: Files,
    into: str,
    pack: Callable[[IO[bytes], Callable[[str], None]], None],
    skipped: Skipped | None,
    partial: Callable[[], None] | None = None,
) -> None:
    left_out: list[str] = []
    with tempfile.TemporaryFile() as archive:
        await asyncio.to_thread(pack, archive, left_out.append)
        for count, path in enumerate(left_out, 1):
            if skipped is not None:
                skipped(path, count)
        try:
            await files.unpack(into, _blocks(archive))
        except BaseException as error:
            if partial is not None and not _wrote_nothing(error):
                partial()
            raise


def _wrote_nothing(error: BaseException) -> bool:
    """There is no such sandbox, or it says so. (A transfer that is not there any more has been.)"""
    if isinstance(error, NotFoundError):
        return error.field != "transfer"
    return isinstance(error, FileError) and error.started == "no"


async def download(
    files: Files,
    remote: str,
    local: object,
    follow: bool,
    skipped: Skipped | None,
    partial: Callable[[], None] | None,
) -> None:
    check_callbacks(skipped=skipped, partial=partial)
    target = local_path(local)
    found = await files.stat(remote, follow=follow)
    with local_errors(target):
        there = await asyncio.to_thread(_stat, target)
        if found.type != "dir":
            await _put(files, remote, target, found, there)
            return
    with tempfile.TemporaryFile() as archive:
        await _fetch(archive, lambda: files.pack(remote, skipped=skipped))
        if there is None:
            await asyncio.to_thread(unpack_new, archive, target, found.mode, found.mtime)
            return
        unpacking = Unpacking(target, new=False)
        try:
            await asyncio.to_thread(unpacking.take, archive)
        except BaseException:
            if unpacking.wrote and partial is not None:
                partial()
            raise


async def _fetch(archive: IO[bytes], source: Callable[[], AsyncGenerator[bytes, None]]) -> None:
    """A file or tree may be another one by the time that it is asked for again: what was cut off is begun anew."""
    for attempt in range(1, _TRIES + 1):
        archive.seek(0)
        archive.truncate()
        try:
            await _write_all(archive, source())
            archive.seek(0)
            return
        except SandmeshError as error:
            if attempt == _TRIES or not may_be_lost(error):
                raise


async def _put(files: Files, remote: str, target: bytes, found: FileStat, there: os.stat_result | None) -> None:
    """A file or a symlink, under another name first, so that a half one is never taken for whole. As cp(1) has it, a
    file goes to what a symlink leads to, and what is neither file nor folder, such as /dev/stdout, is written to."""
    await asyncio.to_thread(os.makedirs, os.path.dirname(target) or b".", exist_ok=True)
    place = target
    if there is not None and not stat.S_ISDIR(there.st_mode) and not stat.S_ISREG(there.st_mode):
        if found.type == "symlink":
            raise FileError(f"{shown(target)} is in the way of the symlink", reason="EEXIST")
        await write_special(target, files.read_parts(remote))
        return
    if there is not None and stat.S_ISDIR(there.st_mode):
        place = os.path.join(target, os.fsencode(os.path.basename(remote.rstrip("/"))))
    elif there is not None and found.type != "symlink":
        place = await asyncio.to_thread(os.path.realpath, target)
    with whole(place) as half:
        if found.type == "symlink":
            _make_link(half, found)
            return
        with await asyncio.to_thread(_open_new, half) as file:
            if found.allocated is not None and found.allocated < found.size:
                await _write_sparse(files, remote, file)
            else:
                await _write_all(file, files.read_parts(remote))
        os.utime(half, (found.mtime, found.mtime))
        os.chmod(half, found.mode)


async def _write_sparse(files: Files, remote: str, file: IO[bytes]) -> None:
    with tempfile.TemporaryFile() as archive:
        await _fetch(archive, lambda: files.pack(remote))
        await asyncio.to_thread(unpack_file, archive, file)


async def _write_all(file: IO[bytes], parts: AsyncGenerator[bytes, None]) -> None:
    # Also where it cannot be written: an error that somebody keeps would keep the reading.
    async with contextlib.aclosing(parts):
        async for part in parts:
            await asyncio.to_thread(file.write, part)


def _open_new(path: bytes) -> IO[bytes]:
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _make_link(half: bytes, found: FileStat) -> None:
    target = found.target or ""
    if "\ufffd" in target:
        message = f"{found.path} leads to a name that is no UTF-8; copy the folder that it is in"
        raise FileError(message, reason="EILSEQ")
    os.symlink(os.fsencode(target), half)
    os.utime(half, (found.mtime, found.mtime), follow_symlinks=False)


def _stat(path: bytes) -> os.stat_result | None:
    try:
        return os.stat(path)
    except FileNotFoundError:
        return None


def _remote(path: object) -> bytes:
    """Bytes, or text as ``os.fsdecode`` makes it, are for names that are no UTF-8."""
    try:
        name = path.encode("utf-8", "surrogateescape") if isinstance(path, str) else path
        if isinstance(name, bytes) and name != b"" and b"\0" not in name:
            return name
    except UnicodeEncodeError:
        pass
    raise InvalidRequestError("path: must be a path of the sandbox", field="path")


def _utf8(name: bytes) -> str | None:
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None


async def _whole(file: IO[bytes], path: bytes) -> AsyncGenerator[bytes, None]:
    """To its end, also of one that grows or does not tell its size, as those of /proc. Raises FileError where it became
    shorter meanwhile: what was read never stood in it."""
    size, total = os.fstat(file.fileno()).st_size, 0
    with local_errors(path):
        async for block in _blocks(file):
            total += len(block)
            yield block
    if total < size:
        raise became_shorter(path)


async def _blocks(file: IO[bytes]) -> AsyncGenerator[bytes, None]:
    while block := await asyncio.to_thread(file.read, _BLOCK):
        yield block
