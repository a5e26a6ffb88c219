"""Files of a sandbox without ``await``: ``box.files``."""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Iterator

from .. import files
from .._wire.handle import Handle
from ..copies import Skipped
from .loop import Loop


class Files(Handle):
    """As ``sandmesh.Files``."""

    def __init__(self, loop: Loop, inner: files.Files) -> None:
        self._loop = loop
        self._files = inner

    def beneath(self, root: str) -> Files:
        return Files(self._loop, self._files.beneath(root))

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        return self._loop.call(self._files.read(path, offset=offset, length=length))

    def read_text(self, path: str, *, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._loop.call(self._files.read_text(path, encoding=encoding, errors=errors))

    def read_parts(self, path: str, *, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        return self._loop.each(self._files.read_parts(path, offset=offset, length=length))

    def write(
        self,
        path: str,
        content: files.Content,
        *,
        append: bool = False,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        mtime: float | None = None,
        parents: bool = True,
        fsync: bool = False,
    ) -> int:
        return self._loop.call(
            self._files.write(
                path,
                content,
                append=append,
                mode=mode,
                uid=uid,
                gid=gid,
                mtime=mtime,
                parents=parents,
                fsync=fsync,
            )
        )

    def stat(self, path: str, *, follow: bool = True) -> files.FileStat:
        return self._loop.call(self._files.stat(path, follow=follow))

    def exists(self, path: str) -> bool:
        return self._loop.call(self._files.exists(path))

    def list(self, path: str = ".") -> list[files.FileStat]:
        return self._loop.call(self._files.list(path))

    def remove(self, path: str, *, recursive: bool = False, missing_ok: bool = False) -> None:
        self._loop.call(self._files.remove(path, recursive=recursive, missing_ok=missing_ok))

    def mkdir(self, path: str, *, mode: int | None = None, parents: bool = True) -> None:
        self._loop.call(self._files.mkdir(path, mode=mode, parents=parents))

    def rename(self, source: str, target: str) -> None:
        self._loop.call(self._files.rename(source, target))

    def sha256(self, path: str) -> str:
        return self._loop.call(self._files.sha256(path))

    def chmod(self, path: str, mode: int) -> None:
        self._loop.call(self._files.chmod(path, mode))

    def chown(self, path: str, *, uid: int | None = None, gid: int | None = None, follow: bool = True) -> None:
        self._loop.call(self._files.chown(path, uid=uid, gid=gid, follow=follow))

    def glob(self, pattern: str, folder: str = ".", *, hidden: bool = False) -> builtins.list[str]:
        return self._loop.call(self._files.glob(pattern, folder, hidden=hidden))

    def search(
        self,
        text: str,
        path: str = ".",
        *,
        ignore_case: bool = False,
        files: str | None = None,
        hidden: bool = False,
        limit: int = 1000,
    ) -> files.Matches:
        return self._loop.call(
            self._files.search(text, path, ignore_case=ignore_case, files=files, hidden=hidden, limit=limit)
        )

    def watch(self, path: str, *, recursive: bool = True) -> Iterator[files.FileChange]:
        return self._loop.each(self._files.watch(path, recursive=recursive))

    def pack(self, path: str, *, skipped: Skipped | None = None) -> Iterator[bytes]:
        return self._loop.each(self._files.pack(path, skipped=skipped))

    def unpack(self, path: str, tar: files.Content, *, owner: bool = False) -> int:
        return self._loop.call(self._files.unpack(path, tar, owner=owner))

    def upload(
        self,
        local: str | bytes | os.PathLike[str],
        path: str | bytes,
        *,
        follow: bool = True,
        skipped: Skipped | None = None,
        partial: Callable[[], None] | None = None,
    ) -> None:
        """``skipped`` and ``partial`` are called on the loop's thread, where they may not call this API."""
        self._loop.call(self._files.upload(local, path, follow=follow, skipped=skipped, partial=partial))

    def download(
        self,
        path: str,
        local: str | bytes | os.PathLike[str],
        *,
        follow: bool = True,
        skipped: Skipped | None = None,
        partial: Callable[[], None] | None = None,
    ) -> None:
        """``skipped`` and ``partial`` are called on the loop's thread, where they may not call this API."""
        self._loop.call(self._files.download(path, local, follow=follow, skipped=skipped, partial=partial))
