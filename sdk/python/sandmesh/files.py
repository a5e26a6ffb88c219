"""Files of a sandbox: ``box.files``."""

from __future__ import annotations

import asyncio
import builtins
import os
import stat as stat_module
import tempfile
from collections.abc import AsyncGenerator, AsyncIterable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, Union

from ._wire.arguments import check_arguments
from ._wire.box import Box
from ._wire.download import download_frames
from ._wire.ids import new_uuid7
from ._wire.parts import parts_of, send_parts, split
from ._wire.tree import local_errors, local_path, pack_tree, unpack_tree, whole
from .errors import FileError, InvalidRequestError, NotFoundError

Content = Union[str, bytes, Iterable[Union[str, bytes]], AsyncIterable[Union[str, bytes]]]  # noqa: UP007
FileType = Literal["file", "dir", "symlink", "fifo", "socket", "char", "block"]
_BLOCK = 1024 * 1024


@dataclass(frozen=True)
class FileStat:
    path: str
    type: FileType
    size: int
    mode: int
    """Permission bits."""
    uid: int
    gid: int
    mtime: float
    """Seconds since the epoch."""
    target: str | None = None
    """Of a symlink."""

    @property
    def is_dir(self) -> bool:
        return self.type == "dir"

    @property
    def is_file(self) -> bool:
        return self.type == "file"


@dataclass(frozen=True)
class Match:
    path: str
    """Below the folder that was searched; empty where that was a file."""
    line: int
    """From 1."""
    text: str
    """The line, at most 500 characters around the match."""


@dataclass(frozen=True)
class FileChange:
    path: str
    """Below the folder; empty for an overflow."""
    kind: Literal["changed", "removed", "overflow"]


_HASH_S = 600.0
_LOOK_S = 40.0
_WATCH_S = 30.0
_FOREVER_S = 24 * 3600.0


def _stat_of(wire: dict[str, Any]) -> FileStat:
    fields = {name: wire[name] for name in ("path", "type", "size", "mode", "uid", "gid")}
    return FileStat(**fields, mtime=wire["mtime_ms"] / 1000, target=wire.get("target"))


class Files:
    """All paths are the sandbox's, relative ones from its working folder. All methods raise FileError, whose
    ``reason`` is the errno name, such as ``ENOENT``."""

    def __init__(self, box: Box) -> None:
        self._box = box

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """The file, or a range of it, whole in memory."""
        return b"".join([part async for part in self.read_parts(path, offset=offset, length=length)])

    async def read_text(self, path: str, *, encoding: str = "utf-8", errors: str = "strict") -> str:
        return (await self.read(path)).decode(encoding, errors)

    async def read_parts(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncGenerator[bytes, None]:
        """The file in parts, as they come; memory stays at the credit of 1 MiB."""
        request: dict[str, Any] = {"path": path, "offset": offset}
        if length is not None:
            request["length"] = length
        check_arguments("sandbox.read.request", request)
        async for part in download_frames(self._box, "read", request, offset, length):
            yield part

    async def write(
        self,
        path: str,
        content: Content,
        *,
        append: bool = False,
        mode: int | None = None,
        uid: int | None = None,
        gid: int | None = None,
        mtime: float | None = None,
        parents: bool = True,
        fsync: bool = False,
    ) -> int:
        """Writes a file, which appears whole or not at all; missing folders are made. ``append`` takes at most
        256 KiB at once. Returns the number of bytes."""
        options: dict[str, Any] = {"path": path, "append": append, "parents": parents, "fsync": fsync}
        mtime_ms = mtime * 1000 if isinstance(mtime, int | float) else mtime
        for name, value in (("mode", mode), ("uid", uid), ("gid", gid), ("mtime_ms", mtime_ms)):
            if value is not None:
                options[name] = value
        check_arguments("sandbox.write.request", {**options, "data": b""})
        data, parts = split(content, "content")
        if append and data is None:
            raise InvalidRequestError("content: append takes text or bytes of at most 256 KiB", field="content")
        if data is None:
            return await self._send("write", options, parts)
        # An append that was answered by nothing may have happened: it is not sent twice.
        await self._box.call("write", {**options, "data": data}, once=append)
        return len(data)

    async def _send(self, verb: Literal["write", "unpack"], options: dict[str, Any], content: Any) -> int:
        transfer = new_uuid7()

        async def send(offset: int, data: bytes, last: bool) -> None:
            part = {**options, "transfer": transfer, "offset": offset, "data": data, "last": last}
            await self._box.call(verb, part)

        try:
            return await send_parts(parts_of(content, "content"), send)
        except BaseException:
            self._box.caller.behind(self._box.call("abort_transfer", {"transfer": transfer}))
            raise

    async def stat(self, path: str, *, follow: bool = True) -> FileStat:
        """Of what the path leads to; without ``follow`` of a symlink itself."""
        return _stat_of(await self._box.call("stat", {"path": path, "follow": follow}))

    async def exists(self, path: str) -> bool:
        try:
            await self.stat(path)
            return True
        except FileError as error:
            if error.reason in ("ENOENT", "ENOTDIR"):
                return False
            raise

    async def list(self, path: str = ".") -> list[FileStat]:
        """A folder's entries, by name."""
        entries: list[FileStat] = []
        request: dict[str, Any] = {"path": path}
        while True:
            page = await self._box.call("list", request)
            entries += map(_stat_of, page["entries"])
            if not page["more"] or not page["entries"]:
                return entries
            request["after"] = os.path.basename(entries[-1].path)

    async def remove(self, path: str, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """A file, or with ``recursive`` a folder. Never follows a symlink."""
        await self._box.call("remove", {"path": path, "recursive": recursive, "missing_ok": missing_ok})

    async def mkdir(self, path: str, *, mode: int | None = None, parents: bool = True) -> None:
        extra = {} if mode is None else {"mode": mode}
        await self._box.call("mkdir", {"path": path, "parents": parents, **extra})

    async def rename(self, source: str, target: str) -> None:
        await self._box.call("rename", {"from": source, "to": target})

    async def sha256(self, path: str) -> str:
        """A file's sha256 in hexadecimal, without transferring the file."""
        answer = await self._box.call("hash", {"path": path}, once=True, timeout=_HASH_S)
        return str(answer["sha256"])

    async def chmod(self, path: str, mode: int) -> None:
        """Sets permission bits, such as ``0o755``."""
        await self._box.call("attributes", {"path": path, "mode": mode})

    async def chown(self, path: str, *, uid: int | None = None, gid: int | None = None, follow: bool = True) -> None:
        """Sets owner and group, of which one may be left out; without ``follow`` of a symlink itself."""
        given = {name: value for name, value in (("uid", uid), ("gid", gid)) if value is not None}
        if not given:
            raise InvalidRequestError("uid: a uid or a gid is needed", field="uid")
        await self._box.call("attributes", {"path": path, "follow": follow, **given})

    async def glob(self, pattern: str, folder: str = ".", *, hidden: bool = False) -> builtins.list[str]:
        """Paths below the folder that match: ``*`` and ``?`` within a name, ``**`` for any depth, ``[abc]``, ``{a,b}``.
        In order; symlinks are told and not followed."""
        paths: builtins.list[str] = []
        request: dict[str, Any] = {"path": folder, "pattern": pattern, "hidden": hidden}
        check_arguments("sandbox.glob.request", request, path="folder")
        while True:
            page = await self._box.call("glob", request, again_after=_LOOK_S, timeout=_LOOK_S)
            paths += page["paths"]
            if not page["more"] or not page["paths"]:
                return paths
            request["after"] = paths[-1]

    async def search(
        self,
        text: str,
        path: str = ".",
        *,
        ignore_case: bool = False,
        files: str | None = None,
        hidden: bool = False,
        limit: int = 1000,
    ) -> builtins.list[Match]:
        """Lines that contain ``text`` (no pattern language) in the files below a folder, or in one file; at most
        ``limit``. ``files`` is a pattern as of ``glob``. Binary files are left out."""
        request: dict[str, Any] = {"path": path, "text": text, "ignore_case": ignore_case, "hidden": hidden}
        request["limit"] = limit
        if files is not None:
            request["files"] = files
        answer = await self._box.call("search", request, again_after=_LOOK_S, timeout=_LOOK_S)
        return [Match(**match) for match in answer["matches"]]

    async def watch(self, path: str, *, recursive: bool = True) -> AsyncGenerator[FileChange, None]:
        """What changes below a folder, from the first step of the loop on. ``overflow``: more changed than could be
        remembered; look for yourself."""
        request: dict[str, Any] = {"path": path, "recursive": recursive}
        answer = await self._box.call("watch", request)
        while True:
            asked = {**request, "cursor": answer["cursor"]}
            try:
                answer = await self._box.call("watch", asked, again_after=_WATCH_S, timeout=_FOREVER_S)
            except NotFoundError:
                # The connection was away for longer than the sandbox keeps a watch.
                answer = {**await self._box.call("watch", request), "overflow": True}
            if answer["overflow"]:
                yield FileChange("", "overflow")
            for change in answer["changes"]:
                yield FileChange(**change)

    async def upload(self, local: str | os.PathLike[str], path: str) -> None:
        """A file to the path, or a folder's contents into the folder ``path``, with modes and symlinks."""
        source = local_path(local)
        with local_errors(source):
            info = await asyncio.to_thread(source.stat)
            if not stat_module.S_ISDIR(info.st_mode):
                with await asyncio.to_thread(open, source, "rb") as file:
                    options = {"mode": stat_module.S_IMODE(info.st_mode), "mtime": info.st_mtime}
                    await self.write(path, _blocks(file), **options)  # type: ignore[arg-type]
                return
            await self.mkdir(path)
            with tempfile.TemporaryFile() as archive:
                await asyncio.to_thread(pack_tree, source, archive)
                await self._send("unpack", {"path": path, "owner": False}, _blocks(archive))

    async def download(self, path: str, local: str | os.PathLike[str]) -> None:
        """A file to the local path, or a folder's contents into the local folder, with modes and symlinks. A file, and a
        folder that is new, appears whole or not at all; nothing is written outside the folder, whatever the sandbox sends."""
        target = local_path(local)
        info = await self.stat(path)
        with local_errors(target):
            if not info.is_dir:
                await self._download_file(path, info, target)
                return
            with tempfile.TemporaryFile() as archive:
                async for part in download_frames(self._box, "pack", {"path": path}, 0, None):
                    await asyncio.to_thread(archive.write, part)
                await asyncio.to_thread(unpack_tree, archive, target)

    async def _download_file(self, path: str, info: FileStat, target: Path) -> None:
        await asyncio.to_thread(target.parent.mkdir, parents=True, exist_ok=True)
        with whole(target) as half:
            with await asyncio.to_thread(open, half, "xb", opener=_private) as file:
                async for part in self.read_parts(path):
                    await asyncio.to_thread(file.write, part)
            half.chmod(info.mode & 0o777)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


async def _blocks(file: IO[bytes]) -> AsyncGenerator[bytes, None]:
    while block := await asyncio.to_thread(file.read, _BLOCK):
        yield block
