"""A tar archive into a folder of this machine. What comes from a sandbox is not trusted: nothing is written outside of
the folder. Names are bytes, as the file system has them."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from typing import IO

from ..errors import FileError
from .ids import cut
from .sparse import write_sparse
from .tree import local_errors, shown, whole


def unpack_new(archive: IO[bytes], target: bytes, mode: int, mtime: float) -> None:
    """A folder that is new appears whole, or not at all."""
    with local_errors(target):
        os.makedirs(os.path.dirname(target) or b".", exist_ok=True)
        with whole(target) as half:
            os.mkdir(half)
            Unpacking(half, new=True).take(archive)
            os.utime(half, (mtime, mtime))
            os.chmod(half, mode)


def unpack_file(archive: IO[bytes], file: IO[bytes]) -> None:
    """The content of an archive's one file, with its holes. Raises FileError."""
    with _damage(), tarfile.open(fileobj=archive, mode="r:", encoding="utf-8") as tar:
        entry = tar.next()
        content = None if entry is None else tar.extractfile(entry)
        if entry is None or content is None:
            raise FileError("the archive has no file in it", reason="EIO")
        _write(entry, content, file)


def _write(entry: tarfile.TarInfo, content: IO[bytes], file: IO[bytes]) -> None:
    if entry.issparse():
        write_sparse(entry, content, file)
    else:
        shutil.copyfileobj(content, file)


@contextlib.contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    # The last two are tarfile's, of a sparse entry's map that is none.
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise FileError(f"the archive is damaged: {error}", reason="EIO") from error


class Unpacking:
    """Into ``root``, which is there. Symlinks are made last, so that no entry is written through one of the archive's
    own."""

    def __init__(self, root: bytes, new: bool) -> None:
        self._root = root
        self._new = new
        self.wrote = False
        """Whether anything in the folder is other than before."""

    def take(self, archive: IO[bytes]) -> None:
        """Raises FileError for a name that leads outside, and that names what cannot be written."""
        links: list[tarfile.TarInfo] = []
        # Where the archive has one twice, the last counts.
        folders: dict[bytes, tarfile.TarInfo] = {}
        with _damage(), tarfile.open(fileobj=archive, mode="r:", encoding="utf-8") as tar:
            for entry in tar:
                self._put(tar, entry, links, folders)
        for entry in links:
            self._link(entry)
        # Deepest first: what is written into a folder changes its time, and its mode may forbid writing.
        for path, entry in reversed(folders.items()):
            with local_errors(path):
                os.utime(path, (entry.mtime, entry.mtime))
                os.chmod(path, entry.mode & 0o7777)

    def _put(
        self,
        tar: tarfile.TarFile,
        entry: tarfile.TarInfo,
        links: list[tarfile.TarInfo],
        folders: dict[bytes, tarfile.TarInfo],
    ) -> None:
        names = _components(entry.name)
        path = self._path(names)
        with local_errors(path):
            if entry.isdir():
                # "./" is the folder itself: one that was there keeps its own mode and time.
                if names or self._new:
                    self._folders(names)
                    folders[path] = entry
            elif not names:
                return
            elif entry.issym():
                self._folders(names[:-1])
                links.append(entry)
            elif entry.islnk():
                self._folders(names[:-1])
                self._hard_link(self._path(_components(entry.linkname)), path)
            elif entry.isfile():
                self._folders(names[:-1])
                self._file(tar, entry, path)

    def _path(self, names: list[bytes]) -> bytes:
        return os.path.join(self._root, *names)

    def _folders(self, names: list[bytes]) -> None:
        """Those that lead to ``names`` and it; one that is a symlink may lead outside."""
        for depth in range(1, len(names) + 1):
            path = self._path(names[:depth])
            try:
                found = os.lstat(path)
            except FileNotFoundError:
                os.mkdir(path)
                self.wrote = True
                continue
            if not stat.S_ISDIR(found.st_mode):
                raise FileError(f"{shown(path)} is in the way of the archive's folder", reason="ENOTDIR")

    def _remove_old(self, path: bytes) -> None:
        """What is no folder: an old symlink of that name is replaced, not followed."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
            self.wrote = True

    def _file(self, tar: tarfile.TarFile, entry: tarfile.TarInfo, path: bytes) -> None:
        content = tar.extractfile(entry)
        assert content is not None
        self._remove_old(path)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            self.wrote = True
            _write(entry, content, file)
            file.flush()
            os.utime(file.fileno(), (entry.mtime, entry.mtime))
            os.chmod(file.fileno(), entry.mode & 0o7777)

    def _hard_link(self, existing: bytes, path: bytes) -> None:
        if not stat.S_ISREG(os.lstat(existing).st_mode):
            raise FileError(f"{shown(existing)} is not a file to link to", reason="EINVAL")
        self._remove_old(path)
        os.link(existing, path, follow_symlinks=False)
        self.wrote = True

    def _link(self, entry: tarfile.TarInfo) -> None:
        path = self._path(_components(entry.name))
        with local_errors(path):
            self._remove_old(path)
            os.symlink(_bytes(entry.linkname), path)
            self.wrote = True
            os.utime(path, (entry.mtime, entry.mtime), follow_symlinks=False)


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _components(name: str) -> list[bytes]:
    """Raises FileError where it would leave the folder."""
    if name.startswith("/"):
        raise FileError(f"the archive's entry {cut(repr(name))} has an absolute name", reason="EINVAL")
    parts = [part for part in _bytes(name).split(b"/") if part not in (b"", b".")]
    if b".." in parts:
        raise FileError(f"the archive's entry {cut(repr(name))} leaves the folder by '..'", reason="EINVAL")
    return parts
