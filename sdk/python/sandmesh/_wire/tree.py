"""Folders as tar: packed from, and unpacked to, the local disk. What comes from a sandbox is not trusted."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import tarfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from ..errors import FileError, InvalidRequestError, UnsupportedError


def local_path(path: object) -> Path:
    try:
        name = os.fspath(path) if isinstance(path, str | os.PathLike) else None
        # Path("") would be the current folder, whole.
        if isinstance(name, str) and name != "" and b"\0" not in os.fsencode(name):
            return Path(name)
    except UnicodeEncodeError:
        pass
    raise InvalidRequestError("local: must be a path of this machine", field="local")


@contextlib.contextmanager
def local_errors(path: Path) -> Iterator[None]:
    """This machine's own file errors, in the same class as a sandbox's."""
    try:
        yield
    except OSError as error:
        reason = errno.errorcode.get(error.errno or 0, "EIO")
        raise FileError(f"{path}, on this machine: {error.strerror or error}", reason=reason) from error


def pack_tree(source: Path, archive: IO[bytes]) -> None:
    """The folder's contents, with modes, times and symlinks, without owners."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        # Sockets, devices and pipes are no data.
        return member if member.isfile() or member.isdir() or member.issym() or member.islnk() else None

    with tarfile.open(fileobj=archive, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for entry in sorted(os.listdir(source)):
            tar.add(source / entry, arcname=entry, filter=plain)
    archive.seek(0)


def unpack_tree(archive: IO[bytes], target: Path) -> None:
    """Into ``target``; raises FileError where an entry would leave it."""
    if not hasattr(tarfile, "data_filter"):
        raise UnsupportedError("unpacking safely needs Python 3.10.12, 3.11.4 or later")
    archive.seek(0)
    if target.exists():
        _unpack(archive, target)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole(target) as half:
        half.mkdir()
        _unpack(archive, half)


@contextlib.contextmanager
def whole(target: Path) -> Iterator[Path]:
    """Another name beside it, for what the block makes: it appears whole, or not at all."""
    half = target.parent / f".{uuid.uuid4()}.part"
    try:
        yield half
        half.replace(target)
    except BaseException:
        if half.is_dir():
            shutil.rmtree(half, ignore_errors=True)
        else:
            half.unlink(missing_ok=True)
        raise


def _unpack(archive: IO[bytes], target: Path) -> None:
    # A symlink that leads out of the folder does no harm by itself, only as a way for what comes behind it: so
    # these are made last.
    leading_out: list[tarfile.TarInfo] = []

    def safe(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        try:
            return tarfile.data_filter(member, path)
        except (tarfile.AbsoluteLinkError, tarfile.LinkOutsideDestinationError):
            if not member.issym():
                raise
            inside = member.replace(linkname=".", deep=False)
            checked = tarfile.data_filter(inside, path)
            leading_out.append(member.replace(name=checked.name, deep=False))
            return None

    try:
        with tarfile.open(fileobj=archive, mode="r|") as tar:
            tar.extractall(target, filter=safe)
    except tarfile.FilterError as error:
        raise FileError(f"the archive would write outside its folder: {error}", reason="EPERM") from error
    except (tarfile.TarError, OSError) as error:
        raise FileError(f"the archive is damaged: {error}", reason="EIO") from error
    for member in leading_out:
        _link_out(target, member)


def _link_out(target: Path, member: tarfile.TarInfo) -> None:
    path = target / member.name
    # Its own folder must still be inside, by whatever links there are now.
    if not path.parent.resolve().is_relative_to(target.resolve()):
        raise FileError(f"the archive would write outside its folder: {member.name}", reason="EPERM")
    with local_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or path.is_file():
            path.unlink()
        os.symlink(member.linkname, path)
