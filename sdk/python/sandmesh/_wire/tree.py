"""This machine's side of copies: its paths, its errors, and folders as tar. Names are bytes, as the file system has
them."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import shutil
import stat
import tarfile
import uuid
from collections.abc import Callable, Iterator
from typing import IO

from ..errors import FileError, InvalidRequestError
from .ids import cut
from .sparse import add_sparse, regions_of

Tell = Callable[[str], None]


def local_path(path: object) -> bytes:
    try:
        name = os.fsencode(path) if isinstance(path, str | bytes | os.PathLike) else b""
        # An empty one would be the current folder, whole.
        if name != b"" and b"\0" not in name:
            return name
    except UnicodeEncodeError:
        pass
    raise InvalidRequestError("local: must be a path of this machine", field="local")


@contextlib.contextmanager
def local_errors(path: bytes) -> Iterator[None]:
    """This machine's own file errors, in the same class as a sandbox's."""
    try:
        yield
    except OSError as error:
        reason = errno.errorcode.get(error.errno or 0, "EIO")
        raise FileError(f"{shown(path)}, on this machine: {error.strerror or error}", reason=reason) from error


@contextlib.contextmanager
def whole(target: bytes) -> Iterator[bytes]:
    """Another name beside it, on the same file system, for what the block makes: it appears whole, or not at all."""
    half = os.path.join(os.path.dirname(target.rstrip(b"/")), f".{uuid.uuid4()}.part".encode())
    try:
        yield half
        os.replace(half, target)
    except BaseException:
        _remove(half)
        raise


def _remove(path: bytes) -> None:
    if not os.path.isdir(path) or os.path.islink(path):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        return
    # Also with folders that nobody may write to.
    for folder, names, _files in os.walk(path):
        for name in names:
            below = os.path.join(folder, name)
            if not os.path.islink(below):
                os.chmod(below, 0o700)
    shutil.rmtree(path, ignore_errors=True)


def shown(path: bytes) -> str:
    return cut(path.decode("utf-8", "replace"))


def became_shorter(path: bytes) -> FileError:
    return FileError(f"{shown(path)}, on this machine: became shorter while it was read", reason="ESTALE")


def pack_folder(folder: bytes, archive: IO[bytes], skipped: Tell) -> None:
    """The folder itself as "." and its content, with modes, times and links. ``skipped`` is told the path of each fifo,
    socket and device, which are left out. Raises FileError that names what cannot be read, went away or became shorter
    meanwhile."""
    with _Packer(archive, skipped) as packer:
        with local_errors(folder):
            packer.add(folder, b".", os.stat(folder))
        packer.content(folder, b"")


def pack_as(name: bytes, path: bytes, archive: IO[bytes], skipped: Tell) -> None:
    """What stands at ``path``, a symlink as such, under that one name; otherwise as ``pack_folder``."""
    with _Packer(archive, skipped) as packer:
        packer.take(path, name)


class _Packer:
    def __init__(self, archive: IO[bytes], skipped: Tell) -> None:
        self._archive = archive
        self._tar = tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8")
        self._skipped = skipped
        # By device and number, of those with several.
        self._first_names: dict[tuple[int, int], str] = {}

    def __enter__(self) -> _Packer:
        return self

    def __exit__(self, *_: object) -> None:
        self._tar.close()
        self._archive.seek(0)

    def content(self, folder: bytes, prefix: bytes) -> None:
        with local_errors(folder):
            names = sorted(os.listdir(folder))
        for name in names:
            self.take(os.path.join(folder, name), prefix + name)

    def take(self, path: bytes, name: bytes) -> None:
        with local_errors(path):
            found = os.lstat(path)
            if stat.S_ISREG(found.st_mode):
                self._file(path, name)
            elif stat.S_ISLNK(found.st_mode) or stat.S_ISDIR(found.st_mode):
                self.add(path, name, found)
            else:
                self._skipped(path.decode("utf-8", "replace"))
        if stat.S_ISDIR(found.st_mode):
            self.content(path, name + b"/")

    def _file(self, path: bytes, name: bytes) -> None:
        # Should something else have taken its place since: a symlink is not followed, a fifo not waited for.
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            try:
                self.add(path, name, found, file)
            except OSError as error:
                # tarfile's own, of a file that ends too early.
                if error.errno is not None or os.fstat(file.fileno()).st_size >= found.st_size:
                    raise
                raise became_shorter(path) from error

    def add(self, path: bytes, name: bytes, found: os.stat_result, file: IO[bytes] | None = None) -> None:
        entry = tarfile.TarInfo(_text(name))
        entry.mode = stat.S_IMODE(found.st_mode)
        entry.mtime = found.st_mtime
        if stat.S_ISDIR(found.st_mode):
            entry.type = tarfile.DIRTYPE
        elif stat.S_ISLNK(found.st_mode):
            entry.type, entry.linkname = tarfile.SYMTYPE, _text(os.readlink(path))
        else:
            entry.size = found.st_size
            first = self._first_name(found, entry.name)
            if first is not None:
                entry.type, entry.linkname, entry.size, file = tarfile.LNKTYPE, first, 0, None
        # pax names are UTF-8 by definition; GNU's long name takes any bytes.
        odd = any("\udc80" <= char <= "\udcff" for char in entry.name + entry.linkname)
        self._tar.format = tarfile.GNU_FORMAT if odd else tarfile.PAX_FORMAT
        if odd:
            self._time(found.st_mtime)
        # (Of an odd name the holes go as zeros: pax alone has them.)
        regions = None if odd or file is None else regions_of(file, found)
        if file is None or regions is None:
            self._tar.addfile(entry, file)
        else:
            add_sparse(self._tar, entry, file, regions)

    def _time(self, mtime: float) -> None:
        """What GNU's header has no room for, in a pax header before it: the time's fraction."""
        rest = f" mtime={mtime:.6f}\n".encode()
        size = len(rest) + 2
        about = tarfile.TarInfo("PaxHeaders/entry")
        about.type, about.size = tarfile.XHDTYPE, size
        self._tar.addfile(about, io.BytesIO(b"%d%b" % (size, rest)))

    def _first_name(self, found: os.stat_result, name: str) -> str | None:
        if found.st_nlink < 2:
            return None
        first = self._first_names.setdefault((found.st_dev, found.st_ino), name)
        return None if first == name else first


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
