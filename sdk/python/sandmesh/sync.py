"""The same SDK without ``await``: ``with sandmesh.sync.connect() as mesh``. Each connection has an event loop on a
thread of its own, on which the asynchronous SDK does the work; so renewal, cancellation and typed errors are the same.
Ctrl-C while a command runs ends the command in the sandbox."""

from __future__ import annotations

import asyncio
import builtins
import concurrent.futures
import os
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from . import commands, files, meshes, ports, runs, sandboxes, shells, streams
from .errors import ConnectionError, SandmeshError
from .units import Seconds

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .results import Chunk, CommandEnd, ExecResult
    from .specs import SpecOptions

T = TypeVar("T")
# How long an interrupted call is waited for, so that its command's end is on its way.
_INTERRUPT_S = 5.0


class _Loop:
    """An event loop on a thread of its own. A daemon: a forgotten mesh must not keep the process from ending."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sandmesh-sync", daemon=True)
        self._thread.start()

    @property
    def foreign(self) -> bool:
        """Whether this is a forked child: the thread, and what was acquired, stayed with the parent."""
        return os.getpid() != self._pid

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Runs ``work`` on the loop and waits; interrupted (Ctrl-C), it cancels the work and waits for that."""
        ended = threading.Event()

        async def run() -> T:
            try:
                return await work
            finally:
                ended.set()

        if self.foreign:
            work.close()
            raise ConnectionError("this connection is of the process that forked this one: connect again here")
        if threading.current_thread() is self._thread:
            work.close()
            raise RuntimeError("sandmesh.sync was called from its own event loop's thread")
        future = asyncio.run_coroutine_threadsafe(run(), self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise
        except BaseException:
            if not future.done():
                future.cancel()
                ended.wait(_INTERRUPT_S)
            raise

    def now(self, make: Callable[[], T]) -> T:
        """Calls ``make`` on the loop: for what is made there without waiting."""

        async def run() -> T:
            return make()

        return self.call(run())

    def leave(self, work: Coroutine[Any, Any, None]) -> None:
        """As ``call``, at the end of a ``with`` block: which in a forked child is none of its business."""
        if self.foreign:
            work.close()
        else:
            self.call(work)

    def close(self) -> None:
        if self.foreign:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        if not self._thread.is_alive():
            self._loop.close()


def connect(
    url: str | None = None,
    credentials: str | os.PathLike[str] | None = None,
    *,
    tenant: str | None = None,
    user: str | None = None,
    timeout: Seconds = 10.0,
    lease: Seconds = 60.0,
) -> Mesh:
    """As ``sandmesh.connect``."""
    loop = _Loop()
    try:
        opening = meshes.connect(url, credentials, tenant=tenant, user=user, timeout=timeout, lease=lease)
        return Mesh(loop, loop.call(opening))
    except BaseException:
        loop.close()
        raise


class CommandStream:
    """``for chunk in stream``, then ``stream.wait()``."""

    def __init__(self, loop: _Loop, stream: streams.CommandStream) -> None:
        self._loop = loop
        self._stream = stream
        self.id = stream.id

    @property
    def end(self) -> CommandEnd | None:
        return self._stream.end

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        chunk = self._loop.call(self._next())
        if chunk is None:
            raise StopIteration
        return chunk

    async def _next(self) -> Chunk | None:
        async for chunk in self._stream:
            return chunk
        return None

    def wait(self) -> CommandEnd:
        return self._loop.call(self._stream.wait())

    def write_stdin(self, data: str | bytes) -> None:
        self._loop.call(self._stream.write_stdin(data))

    def close_stdin(self) -> None:
        self._loop.call(self._stream.close_stdin())

    def signal(self, name: str) -> bool:
        return self._loop.call(self._stream.signal(name))

    def cancel(self) -> bool:
        return self._loop.call(self._stream.cancel())

    def close(self) -> None:
        self._loop.leave(self._stream.close())

    def __enter__(self) -> CommandStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Files:
    """As ``sandmesh.Files``."""

    def __init__(self, loop: _Loop, inner: files.Files) -> None:
        self._loop = loop
        self._files = inner

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        return self._loop.call(self._files.read(path, offset=offset, length=length))

    def read_text(self, path: str, *, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._loop.call(self._files.read_text(path, encoding=encoding, errors=errors))

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
    ) -> builtins.list[files.Match]:
        return self._loop.call(
            self._files.search(text, path, ignore_case=ignore_case, files=files, hidden=hidden, limit=limit)
        )

    def upload(self, local: str | os.PathLike[str], path: str) -> None:
        self._loop.call(self._files.upload(local, path))

    def download(self, path: str, local: str | os.PathLike[str]) -> None:
        self._loop.call(self._files.download(path, local))


class Shell:
    """As ``sandmesh.Shell``."""

    def __init__(self, loop: _Loop, inner: shells.Shell) -> None:
        self._loop = loop
        self._shell = inner
        self.name = inner.name
        self.shell = inner.shell
        self.pid = inner.pid

    def exec(self, line: str, *, check: bool = False, **options: Unpack[commands.CommandOptions]) -> ExecResult:
        return self._loop.call(self._shell.exec(line, check=check, **options))

    def stream(self, line: str, **options: Unpack[commands.CommandOptions]) -> CommandStream:
        return CommandStream(self._loop, self._loop.now(lambda: self._shell.stream(line, **options)))

    def close(self) -> None:
        self._loop.call(self._shell.close())

    def __enter__(self) -> Shell:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.leave(self._shell.__aexit__(kind, error, trace))


class Forward:
    """As ``sandmesh.Forward``."""

    def __init__(self, loop: _Loop, inner: ports.Forward) -> None:
        self._loop = loop
        self._forward = inner
        self.host = inner.host
        self.port = inner.port

    def close(self) -> None:
        self._loop.call(self._forward.close())

    def __enter__(self) -> Forward:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.leave(self._forward.__aexit__(kind, error, trace))


class Sandbox:
    """As ``sandmesh.Sandbox``."""

    def __init__(self, loop: _Loop, inner: sandboxes.Sandbox) -> None:
        self._loop = loop
        self._sandbox = inner
        self.grant = inner.grant
        self.files = Files(loop, inner.files)

    @property
    def id(self) -> str:
        return self._sandbox.id

    @property
    def run(self) -> str | None:
        return self._sandbox.run

    @property
    def lost(self) -> SandmeshError | None:
        return self._sandbox.lost

    def exec(
        self, command: commands.CommandLine, *, check: bool = False, **options: Unpack[commands.CommandOptions]
    ) -> ExecResult:
        return self._loop.call(self._sandbox.exec(command, check=check, **options))

    def stream(
        self,
        command: commands.CommandLine,
        *,
        stdin_open: bool = False,
        **options: Unpack[commands.CommandOptions],
    ) -> CommandStream:
        make = self._sandbox.stream
        return CommandStream(self._loop, self._loop.now(lambda: make(command, stdin_open=stdin_open, **options)))

    def attach(self, command_id: str, *, stdout: int = 0, stderr: int = 0) -> CommandStream:
        make = self._sandbox.attach
        return CommandStream(self._loop, self._loop.now(lambda: make(command_id, stdout=stdout, stderr=stderr)))

    def cancel(self, command_id: str) -> bool:
        return self._loop.call(self._sandbox.cancel(command_id))

    def signal(self, command_id: str, name: str) -> bool:
        return self._loop.call(self._sandbox.signal(command_id, name))

    def commands(self) -> list[sandboxes.CommandInfo]:
        return self._loop.call(self._sandbox.commands())

    def shell(
        self,
        name: str | None = None,
        *,
        shell: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str | None] | None = None,
    ) -> Shell:
        return Shell(self._loop, self._loop.call(self._sandbox.shell(name, shell=shell, cwd=cwd, env=env)))

    def sessions(self) -> list[shells.SessionInfo]:
        return self._loop.call(self._sandbox.sessions())

    def forward(
        self, port: int, *, host: str = "127.0.0.1", local_port: int = 0, local_host: str = "127.0.0.1"
    ) -> Forward:
        opening = self._sandbox.forward(port, host=host, local_port=local_port, local_host=local_host)
        return Forward(self._loop, self._loop.call(opening))

    def expose(
        self, local_port: int, *, port: int = 0, host: str = "127.0.0.1", local_host: str = "127.0.0.1"
    ) -> Forward:
        opening = self._sandbox.expose(local_port, port=port, host=host, local_host=local_host)
        return Forward(self._loop, self._loop.call(opening))

    def info(self) -> dict[str, Any]:
        return self._loop.call(self._sandbox.info())

    def ping(self) -> None:
        self._loop.call(self._sandbox.ping())

    def release(self) -> None:
        self._loop.call(self._sandbox.release())

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.leave(self._sandbox.__aexit__(kind, error, trace))

    def __repr__(self) -> str:
        return repr(self._sandbox)


class Run:
    """As ``sandmesh.Run``."""

    def __init__(self, loop: _Loop, inner: runs.Run) -> None:
        self._loop = loop
        self._run = inner
        self.id = inner.id

    def acquire(
        self,
        image: str,
        *,
        timeout: Seconds = 300.0,
        max_life: Seconds | None = None,
        id: str | None = None,
        **spec: Unpack[SpecOptions],
    ) -> Sandbox:
        opening = self._run.acquire(image, timeout=timeout, max_life=max_life, id=id, **spec)
        return Sandbox(self._loop, self._loop.call(opening))

    def list(self) -> list[sandboxes.SandboxInfo]:
        return self._loop.call(self._run.list())

    def renew(self, lease: Seconds | None = None) -> int:
        return self._loop.call(self._run.renew(lease))

    def release(self, *, wait: bool = True) -> int:
        return self._loop.call(self._run.release(wait=wait))

    def __enter__(self) -> Run:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.leave(self._run.__aexit__(kind, error, trace))


class Mesh:
    """As ``sandmesh.Mesh``. May be used from several threads at once."""

    def __init__(self, loop: _Loop, inner: meshes.Mesh) -> None:
        self._loop = loop
        self._mesh = inner
        self._closed = False

    @property
    def tenant(self) -> str:
        return self._mesh.tenant

    @property
    def user(self) -> str:
        return self._mesh.user

    def acquire(
        self,
        image: str,
        *,
        run: str | None = None,
        timeout: Seconds = 300.0,
        max_life: Seconds | None = None,
        id: str | None = None,
        **spec: Unpack[SpecOptions],
    ) -> Sandbox:
        opening = self._mesh.acquire(image, run=run, timeout=timeout, max_life=max_life, id=id, **spec)
        return Sandbox(self._loop, self._loop.call(opening))

    def run(self, id: str, *, lease: Seconds | None = None) -> Run:
        return Run(self._loop, self._mesh.run(id, lease=lease))

    def sandbox(self, id: str) -> Sandbox:
        return Sandbox(self._loop, self._loop.now(lambda: self._mesh.sandbox(id)))

    def list(self, run: str | None = None) -> list[sandboxes.SandboxInfo]:
        return self._loop.call(self._mesh.list(run))

    def status(self) -> dict[str, Any]:
        return self._loop.call(self._mesh.status())

    def renew(self, run: str, lease: Seconds | None = None) -> int:
        return self._loop.call(self._mesh.renew(run, lease))

    def release(
        self,
        *,
        sandbox: str | None = None,
        lease: str | None = None,
        run: str | None = None,
        wait: bool = True,
    ) -> int:
        return self._loop.call(self._mesh.release(sandbox=sandbox, lease=lease, run=run, wait=wait))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            try:
                self._loop.leave(self._mesh.close())
            finally:
                self._loop.close()

    def __enter__(self) -> Mesh:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except SandmeshError:
            if error is None:  # otherwise the block's own error says more
                raise
