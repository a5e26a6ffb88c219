"""Files of a sandbox: ``box.files``."""

from __future__ import annotations

import builtins
import os
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal, Union

from ._wire.arguments import check_arguments, check_callbacks
from ._wire.box import Box
from ._wire.download import download_frames
from ._wire.handle import Handle
from ._wire.ids import new_uuid7
from ._wire.parts import Source, parts_of, send_parts, source_of
from .copies import Skipped, download, upload
from .errors import FileError, InternalError, InvalidRequestError, NotFoundError

Content = Union[str, bytes, Iterable[Union[str, bytes]], AsyncIterable[Union[str, bytes]]]  # noqa: UP007
FileType = Literal["file", "dir", "symlink", "fifo", "socket", "char", "block"]


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
    allocated: int | None = None
    """Bytes of a file on its disk; less than its size where it has holes."""

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


class Matches(list[Match]):
    """Those found. ``more``: the limit, or the time of 20 s, ended the search."""

    def __init__(self, matches: Iterable[Match], more: bool) -> None:
        super().__init__(matches)
        self.more = more


@dataclass(frozen=True)
class FileChange:
    path: str
    """Below the folder; empty for an overflow."""
    kind: Literal["changed", "removed", "overflow"]
    """A folder that was removed is gone with all below it, of which nothing else need be told; of one that was replaced
    that is told, too, ahead of what is there now."""


_LARGE_S = 600.0
_LOOK_S = 40.0
_WATCH_S = 30.0
_FOREVER_S = 24 * 3600.0


def _stat_of(wire: dict[str, Any]) -> FileStat:
    fields: dict[str, Any] = {name: wire[name] for name in ("path", "type", "size", "mode", "uid", "gid")}
    more: dict[str, Any] = {"target": wire.get("target"), "allocated": wire.get("allocated_bytes")}
    return FileStat(**fields, **more, mtime=wire["mtime_ms"] / 1000)


class Files(Handle):
    """All paths are the sandbox's, relative ones from its working folder. All methods raise FileError, whose
    ``reason`` is the errno name, such as ``ENOENT``."""

    def __init__(self, box: Box, root: str | None = None) -> None:
        self._box = box
        # With what each request that names files begins.
        self._beneath: dict[str, Any] = {} if root is None else {"root": root}

    def beneath(self, root: str) -> Files:
        """The files below a folder of the sandbox: all paths are relative to it, and none leaves it, neither by ``..``
        nor by a symlink, whatever the sandbox's programs swap meanwhile. One that would is a FileError with the reason
        EXDEV, as is an absolute path or link (RESOLVE_BENEATH of openat2(2)). Hard links and mounts do lead out. The
        folder's own path may hold symlinks; it is looked up for each call."""
        check_arguments("sandbox.stat.request", {"path": ".", "root": root})
        if self._beneath:
            raise InvalidRequestError(f"root: these files are beneath {self._beneath['root']} already", field="root")
        return Files(self._box, root)

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """The file, or a range of it, whole in memory. Raises FileError with the reason ESTALE where it became shorter
        meanwhile."""
        return b"".join([part async for part in self.read_parts(path, offset=offset, length=length)])

    async def read_text(self, path: str, *, encoding: str = "utf-8", errors: str = "strict") -> str:
        return (await self.read(path)).decode(encoding, errors)

    async def read_parts(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncGenerator[bytes, None]:
        """The file in parts, as they come; memory stays at the credit of 1 MiB. Raises FileError with the reason ESTALE
        where it became shorter meanwhile: what came never stood in it."""
        request: dict[str, Any] = {**self._beneath, "path": path, "offset": offset}
        if length is not None:
            request["length"] = length
        check_arguments("sandbox.read.request", request)
        async with aclosing(download_frames(self._box, "read", request, offset, length)) as parts:
            async for part in parts:
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
        """Writes a file, which appears whole or not at all; missing folders are made. ``append`` adds to what is there,
        in parts of at most 256 KiB; each is sent once only, since twice would add twice. Returns how many bytes."""
        options: dict[str, Any] = {**self._beneath, "path": path, "append": append}
        options.update(parents=parents, fsync=fsync)
        mtime_ms = mtime * 1000 if isinstance(mtime, int | float) else mtime
        for name, value in (("mode", mode), ("uid", uid), ("gid", gid), ("mtime_ms", mtime_ms)):
            if value is not None:
                options[name] = value
        check_arguments("sandbox.write.request", {**options, "data": b""})
        source = source_of(content, "content")
        return await (self._append(options, source) if append else self._send("write", options, source))

    async def _append(self, options: dict[str, Any], source: Source) -> int:
        sent = 0
        async for _offset, data, _last in parts_of(source, "content"):
            # One part is one append, and one that was answered by nothing may have happened: it is not sent twice.
            await self._box.call("write", {**options, "data": data}, once=True)
            sent += len(data)
        return sent

    async def _send(self, verb: Literal["write", "unpack"], options: dict[str, Any], source: Source) -> int:
        transfer = new_uuid7()

        async def send(offset: int, data: bytes, last: bool) -> None:
            part = {**options, "transfer": transfer, "offset": offset, "data": data, "last": last}
            answer = await self._box.call(verb, part)
            if last and not answer["done"]:
                raise InternalError("the last part was taken, and the transfer is not done", sandbox=self._box.id)

        try:
            return await send_parts(parts_of(source, "content"), send)
        except BaseException:
            self._box.abort_transfer(transfer)
            raise

    async def stat(self, path: str, *, follow: bool = True) -> FileStat:
        """Of what the path leads to; without ``follow`` of a symlink itself."""
        return _stat_of(await self._box.call("stat", {**self._beneath, "path": path, "follow": follow}))

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
        request: dict[str, Any] = {**self._beneath, "path": path}
        while True:
            page = await self._look("list", request, again_after=_LOOK_S)
            entries += map(_stat_of, page["entries"])
            if not page["more"] or not page["entries"]:
                return entries
            request["after"] = os.path.basename(entries[-1].path)

    async def remove(self, path: str, *, recursive: bool = False, missing_ok: bool = False) -> None:
        """A file, or with ``recursive`` a folder. Never follows a symlink. What is cancelled may have removed some."""
        options = {"timeout": _LARGE_S} if recursive else {}
        request = {**self._beneath, "path": path, "recursive": recursive, "missing_ok": missing_ok}
        await self._look("remove", request, **options)

    async def mkdir(self, path: str, *, mode: int | None = None, parents: bool = True) -> None:
        extra = {} if mode is None else {"mode": mode}
        await self._box.call("mkdir", {**self._beneath, "path": path, "parents": parents, **extra})

    async def rename(self, source: str, target: str) -> None:
        await self._box.call("rename", {**self._beneath, "from": source, "to": target})

    async def sha256(self, path: str) -> str:
        """A file's sha256 in hexadecimal, without transferring the file."""
        # Asked again only where the connection was cut: it is dear.
        request = {**self._beneath, "path": path}
        answer = await self._look("hash", request, again_after=_LARGE_S, timeout=_LARGE_S)
        return str(answer["sha256"])

    async def _look(self, verb: str, request: dict[str, Any], **options: Any) -> dict[str, Any]:
        """What may take the sandbox long, and is given up there when it is here."""
        transfer = new_uuid7()
        try:
            return await self._box.call(verb, {**request, "transfer": transfer}, **options)
        except FileError:
            raise
        except BaseException:
            self._box.abort_transfer(transfer)
            raise

    async def chmod(self, path: str, mode: int) -> None:
        """Sets permission bits, such as ``0o755``."""
        await self._box.call("attributes", {**self._beneath, "path": path, "mode": mode})

    async def chown(self, path: str, *, uid: int | None = None, gid: int | None = None, follow: bool = True) -> None:
        """Sets owner and group, of which one may be left out; without ``follow`` of a symlink itself."""
        given = {name: value for name, value in (("uid", uid), ("gid", gid)) if value is not None}
        if not given:
            raise InvalidRequestError("uid: a uid or a gid is needed", field="uid")
        await self._box.call("attributes", {**self._beneath, "path": path, "follow": follow, **given})

    async def glob(self, pattern: str, folder: str = ".", *, hidden: bool = False) -> builtins.list[str]:
        """Paths below the folder that match: ``*`` and ``?`` within a name, ``**`` for any depth, ``[abc]``, ``{a,b}``.
        In order; symlinks are told and not followed."""
        paths: builtins.list[str] = []
        request: dict[str, Any] = {**self._beneath, "path": folder, "pattern": pattern, "hidden": hidden}
        check_arguments("sandbox.glob.request", request, path="folder")
        since = {"cursor": ""}
        while True:
            page = await self._look("glob", {**request, **since}, again_after=_LOOK_S, timeout=_LOOK_S)
            paths += page["paths"]
            if page["more"] and "cursor" in page:
                since = {"cursor": page["cursor"]}
            elif page["more"] and page["paths"]:
                # A daemon of before knows no cursor.
                since = {"after": paths[-1]}
            else:
                return paths

    async def search(
        self,
        text: str,
        path: str = ".",
        *,
        ignore_case: bool = False,
        files: str | None = None,
        hidden: bool = False,
        limit: int = 1000,
    ) -> Matches:
        """Lines that contain ``text`` (no pattern language) in the files below a folder, or in one file; at most
        ``limit``; ``more`` of the answer says whether there may be others. ``files`` is a pattern as of ``glob``.
        Binary files are left out."""
        request: dict[str, Any] = {**self._beneath, "path": path, "text": text, "ignore_case": ignore_case}
        request.update(hidden=hidden, limit=limit)
        if files is not None:
            request["files"] = files
        answer = await self._look("search", request, again_after=_LOOK_S, timeout=_LOOK_S)
        return Matches((Match(**match) for match in answer["matches"]), answer["more"])

    async def watch(self, path: str, *, recursive: bool = True) -> AsyncGenerator[FileChange, None]:
        """What changes below a folder, from the first step of the loop on. ``overflow``: more changed than could be
        remembered, or the connection was cut before it was known to be watched; look for yourself."""
        request: dict[str, Any] = {**self._beneath, "path": path, "recursive": recursive}
        late = not self._box.caller.link.connected

        async def ask(more: dict[str, Any]) -> dict[str, Any]:
            return await self._box.call(
                "watch", {**request, **more}, again_after=_WATCH_S, timeout=_FOREVER_S, on_again=was_late
            )

        def was_late() -> None:
            nonlocal late
            late = True

        transfer = new_uuid7()
        try:
            answer = await ask({"transfer": transfer})
            if late:
                yield FileChange("", "overflow")
            while True:
                try:
                    answer = await ask({"cursor": answer["cursor"]})
                except NotFoundError:
                    # The connection was away for longer than the sandbox keeps a watch, or the folder was replaced.
                    transfer = new_uuid7()
                    answer = await ask({"transfer": transfer})
                    answer["overflow"] = True
                if answer["overflow"]:
                    yield FileChange("", "overflow")
                for change in answer["changes"]:
                    yield FileChange(**change)
        except FileError:
            raise
        except BaseException:
            # The loop was left, or what is done with a change raised: the sandbox would watch on for a minute.
            self._box.abort_transfer(transfer)
            raise

    async def pack(self, path: str, *, skipped: Skipped | None = None) -> AsyncGenerator[bytes, None]:
        """A file or folder as a tar stream (pax), without fifos, sockets and devices, of which ``skipped`` is told.
        Raises FileError with the reason ESTALE, which names the file, where one became shorter while it was read."""
        check_callbacks(skipped=skipped)
        left_out: dict[str, Any] = {}
        request = {**self._beneath, "path": path}
        async with aclosing(download_frames(self._box, "pack", request, 0, None, left_out.update)) as parts:
            async for part in parts:
                yield part
        for each in left_out.get("skipped", ()):
            if skipped is not None:
                skipped(each, left_out.get("skipped_count", 0))

    async def unpack(self, path: str, tar: Content, *, owner: bool = False) -> int:
        """A tar stream into a folder, which is made where it is missing. No entry leaves it, by name or by link. With
        ``owner``, uid and gid are kept. Returns the number of bytes."""
        source = source_of(tar, "tar")
        options = {**self._beneath, "path": path, "owner": owner}
        first = {"transfer": new_uuid7(), "offset": 0, "data": b"", "last": True}
        check_arguments("sandbox.unpack.request", {**options, **first})
        return await self._send("unpack", options, source)

    async def upload(
        self,
        local: str | bytes | os.PathLike[str],
        path: str | bytes,
        *,
        follow: bool = True,
        skipped: Skipped | None = None,
        partial: Callable[[], None] | None = None,
    ) -> None:
        """A file to the path (the new name), or a folder's content into the folder ``path``, with modes, links and
        times (to the microsecond). A folder that is there already keeps its own mode and time. ``follow``: of a symlink
        that is named itself, copies what it leads to, or else the link. ``skipped`` is told what is left out (fifos,
        sockets and devices), ``partial`` before a folder's copying raises, where what was copied by then stays. Raises
        FileError that names the file where one of this machine's cannot be read, went away or became shorter meanwhile.
        Bytes are for names that are no UTF-8; in the sandbox only the last part may be one. Holes of files stay holes,
        and are not sent (of one that is named itself, where nothing is in its place). A fifo, and what a
        descriptor leads to (/dev/stdin), is read to its end, into a file; a fifo's writer is waited for."""
        await upload(self, local, path, follow, skipped, partial)

    async def download(
        self,
        path: str,
        local: str | bytes | os.PathLike[str],
        *,
        follow: bool = True,
        skipped: Skipped | None = None,
        partial: Callable[[], None] | None = None,
    ) -> None:
        """A file or folder of the sandbox to ``local`` (the new name), as ``upload``. Nothing is written outside of it,
        whatever the sandbox sends. What is new appears whole, or not at all; into a folder that was there files come
        one by one."""
        await download(self, path, local, follow, skipped, partial)
