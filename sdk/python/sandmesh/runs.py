"""A run: sandboxes that are renewed together and end together."""

from __future__ import annotations

import builtins
from collections.abc import AsyncGenerator, Collection
from types import TracebackType
from typing import TYPE_CHECKING

from ._wire.handle import Handle
from ._wire.opening import Opening, leave_block
from .burst import acquire_many
from .events import Event, What
from .sandboxes import Sandbox, SandboxInfo
from .units import Seconds

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .meshes import Mesh
    from .specs import SpecOptions


class Run(Handle):
    """From ``mesh.run``."""

    def __init__(self, mesh: Mesh, id: str, lease_ms: int) -> None:
        self._mesh = mesh
        self.id = id
        self._lease_ms = lease_ms

    def acquire(
        self,
        image: str,
        *,
        timeout: Seconds = 300.0,
        lease: Seconds | None = None,
        max_life: Seconds | None = None,
        id: str | None = None,
        **spec: Unpack[SpecOptions],
    ) -> Opening[Sandbox]:
        """As ``mesh.acquire``, in this run."""
        return Opening(self._mesh._acquire(image, self.id, self._lease_ms, lease, timeout, max_life, id, spec))

    async def acquire_many(
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
        """As ``mesh.acquire_many``, in this run."""

        async def one() -> Sandbox:
            return await self.acquire(image, timeout=timeout, lease=lease, max_life=max_life, **spec)

        return await acquire_many(one, count, at_least, at_once)

    def events(
        self, *, sandbox: str | None = None, what: Collection[What] | None = None
    ) -> AsyncGenerator[Event, None]:
        """As ``mesh.events``, of this run."""
        return self._mesh.events(run=self.id, sandbox=sandbox, what=what)

    async def list(self) -> list[SandboxInfo]:
        return await self._mesh.list(self.id)

    async def renew(self, lease: Seconds | None = None) -> int:
        """Once, by hand; while this process holds sandboxes of it, it is renewed without that."""
        return await self._mesh.renew(self.id, self._lease_ms / 1000 if lease is None else lease)

    async def release(self, *, wait: bool = True) -> int:
        """Tears the whole run down."""
        return await self._mesh.release(run=self.id, wait=wait)

    async def __aenter__(self) -> Run:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._mesh._caller.link.home.foreign:
            self._mesh._left_by(error)
            await leave_block(f"run {self.id} was not released", self._mesh._close_run(self.id), error)
