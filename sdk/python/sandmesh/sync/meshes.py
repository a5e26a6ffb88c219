"""The mesh without ``await``."""

from __future__ import annotations

import builtins
import os
from collections.abc import Collection, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .. import meshes, runs, sandboxes
from .._wire.handle import Handle
from ..events import Event, What
from ..units import Seconds
from .loop import Loop
from .sandboxes import Sandbox

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..specs import SpecOptions


def connect(
    url: str | None = None,
    credentials: str | os.PathLike[str] | None = None,
    *,
    ca: str | os.PathLike[str] | None = None,
    tenant: str | None = None,
    user: str | None = None,
    run: str | None = None,
    timeout: Seconds = 10.0,
    lease: Seconds = 60.0,
) -> Mesh:
    """As ``sandmesh.connect``."""
    loop = Loop()
    try:
        opening = meshes.connect(
            url, credentials, ca=ca, tenant=tenant, user=user, run=run, timeout=timeout, lease=lease
        )
        return Mesh(loop, loop.call(opening))
    except BaseException:
        loop.close()
        raise


class Run(Handle):
    """As ``sandmesh.Run``."""

    def __init__(self, loop: Loop, inner: runs.Run) -> None:
        self._loop = loop
        self._run = inner
        self.id = inner.id

    def acquire(
        self,
        image: str,
        *,
        timeout: Seconds = 300.0,
        lease: Seconds | None = None,
        max_life: Seconds | None = None,
        id: str | None = None,
        **spec: Unpack[SpecOptions],
    ) -> Sandbox:
        opening = self._run.acquire(image, timeout=timeout, lease=lease, max_life=max_life, id=id, **spec)
        return Sandbox(self._loop, self._loop.call(opening))

    def acquire_many(
        self,
        count: int,
        image: str,
        *,
        at_least: int | None = None,
        at_once: int = 1000,
        timeout: Seconds = 300.0,
        lease: Seconds | None = None,
        max_life: Seconds | None = None,
        **spec: Unpack[SpecOptions],
    ) -> builtins.list[Sandbox]:
        opening = self._run.acquire_many(
            count, image, at_least=at_least, at_once=at_once, timeout=timeout, lease=lease, max_life=max_life, **spec
        )
        return [Sandbox(self._loop, box) for box in self._loop.call(opening)]

    def events(self, *, sandbox: str | None = None, what: Collection[What] | None = None) -> Iterator[Event]:
        return self._loop.each(self._run.events(sandbox=sandbox, what=what))

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


class Mesh(Handle):
    """As ``sandmesh.Mesh``. May be used from several threads at once."""

    def __init__(self, loop: Loop, inner: meshes.Mesh) -> None:
        self._loop = loop
        self._mesh = inner
        self._closed = False

    def __repr__(self) -> str:
        return repr(self._mesh)

    @property
    def tenant(self) -> str:
        return self._mesh.tenant

    @property
    def user(self) -> str:
        return self._mesh.user

    @property
    def default_run(self) -> str:
        return self._mesh.default_run

    def acquire(
        self,
        image: str,
        *,
        run: str | None = None,
        timeout: Seconds = 300.0,
        lease: Seconds | None = None,
        max_life: Seconds | None = None,
        id: str | None = None,
        **spec: Unpack[SpecOptions],
    ) -> Sandbox:
        opening = self._mesh.acquire(image, run=run, timeout=timeout, lease=lease, max_life=max_life, id=id, **spec)
        return Sandbox(self._loop, self._loop.call(opening))

    def acquire_many(
        self,
        count: int,
        image: str,
        *,
        at_least: int | None = None,
        at_once: int = 1000,
        run: str | None = None,
        timeout: Seconds = 300.0,
        lease: Seconds | None = None,
        max_life: Seconds | None = None,
        **spec: Unpack[SpecOptions],
    ) -> builtins.list[Sandbox]:
        opening = self._mesh.acquire_many(
            count,
            image,
            at_least=at_least,
            at_once=at_once,
            run=run,
            timeout=timeout,
            lease=lease,
            max_life=max_life,
            **spec,
        )
        return [Sandbox(self._loop, box) for box in self._loop.call(opening)]

    def run(self, id: str | None = None, *, lease: Seconds | None = None) -> Run:
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
        must_exist: bool = False,
    ) -> int:
        released = self._mesh.release(sandbox=sandbox, lease=lease, run=run, wait=wait, must_exist=must_exist)
        return self._loop.call(released)

    def events(
        self, *, run: str | None = None, sandbox: str | None = None, what: Collection[What] | None = None
    ) -> Iterator[Event]:
        return self._loop.each(self._mesh.events(run=run, sandbox=sandbox, what=what))

    def drain(self, on: bool = True, *, release_all: bool = False) -> dict[str, Any]:
        return self._loop.call(self._mesh.drain(on, release_all=release_all))

    def close(self) -> None:
        """Does nothing the second time. Calls that are under way in other threads raise ConnectionError."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Mesh:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._closed:
            self._closed = True
            try:
                self._loop.leave(self._mesh.__aexit__(kind, error, trace))
            finally:
                self._loop.close()
