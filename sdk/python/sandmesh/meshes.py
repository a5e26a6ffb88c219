"""The mesh as a client sees it: connecting, acquiring, runs, and leaving nothing behind."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._wire.box import Box, Lifeline, Pulse
from ._wire.caller import Caller, Target
from ._wire.ids import check_id, check_uuid7, new_uuid7, random_name
from ._wire.link import connect_link
from ._wire.opening import Opening, leave_block
from ._wire.renewal import Renewer
from ._wire.schema import check_arguments
from .errors import (
    AcquireTimeoutError,
    ConnectionError,
    DeadlineError,
    PoolUnavailableError,
    SandboxLostError,
    SandmeshError,
)
from .runs import Run
from .sandboxes import Grant, Sandbox, SandboxInfo, Timeline, info_of
from .settings import Settings, resolve_settings
from .specs import SpecOptions, spec_of
from .units import Seconds, milliseconds

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Beside the acquire's own time limit, until the pool's answer must be here.
_SLACK_S = 5.0
_RELEASE_S = 60.0
_RELEASE_AGAIN_S = 10.0
_SETTLE_S = 10.0


def lease_milliseconds(lease: Seconds) -> int:
    lease_ms = milliseconds(lease, "lease")
    check_arguments("pool.renew.request", {"run": "r", "lease_ms": lease_ms})
    return lease_ms


def connect(
    url: str | None = None,
    credentials: str | os.PathLike[str] | None = None,
    *,
    tenant: str | None = None,
    user: str | None = None,
    timeout: Seconds = 10.0,
    lease: Seconds = 60.0,
) -> Opening[Mesh]:
    """``async with connect() as mesh`` (or ``mesh = await connect()``, then ``await mesh.close()``). Left out, the
    address and the credentials (the path of a .creds file, or its text) come from SANDMESH_URL and SANDMESH_CREDS,
    or from the mesh that is up on this machine. ``lease``: how long sandboxes outlive a process that was killed.
    Raises NoMeshError, ConnectionError, PermissionDeniedError, InvalidRequestError."""

    async def open_mesh() -> Mesh:
        settings = resolve_settings(url, credentials, tenant, user)
        lease_ms, timeout_s = lease_milliseconds(lease), milliseconds(timeout, "timeout") / 1000
        link = await connect_link(settings, f"sandmesh-python-{os.getpid()}", timeout_s)
        return Mesh(settings, Caller(link), lease_ms)

    return Opening(open_mesh())


class Mesh:
    """From ``connect``. Belongs to the event loop that it was made in."""

    def __init__(self, settings: Settings, caller: Caller, lease_ms: int) -> None:
        self._caller = caller
        self._lease_ms = lease_ms
        self._loop = caller.link.loop
        self._pulse = Pulse(self._loop)
        caller.link.on_reconnect(self._pulse.reconnected)
        self._renewer = Renewer(settings, self._run_unknown)
        self._held: dict[str, Sandbox] = {}
        self._closing: asyncio.Task[None] | None = None
        host = "".join(c if c.isascii() and c.isalnum() else "-" for c in socket.gethostname().lower())[:20]
        self._own_run = check_id("run", f"py-{host}-{random_name(10)}")

    @property
    def tenant(self) -> str:
        return self._caller.link.tenant

    @property
    def user(self) -> str:
        return self._caller.link.user

    def acquire(
        self,
        image: str,
        *,
        run: str | None = None,
        timeout: Seconds = 300.0,
        max_life: Seconds | None = None,
        id: str | None = None,
        **spec: Unpack[SpecOptions],
    ) -> Opening[Sandbox]:
        """One sandbox, usable when it is returned: ``async with await mesh.acquire(image="host") as box``. ``run``:
        default one of this connection's own. ``max_life``: ended after this whatever is renewed (default a day).
        ``id`` (UUIDv7): the same one again attaches to the first try. Cancelled or timed out, it leaves nothing.
        Raises AcquireTimeoutError, QueueFullError, QuotaExceededError, ImageError, UnsupportedError,
        BootFailedError, …"""
        run = self._own_run if run is None else run
        return Opening(self._acquire(image, run, self._lease_ms, timeout, max_life, id, spec))

    async def _acquire(
        self,
        image: str,
        run: str,
        lease_ms: int,
        timeout: Seconds,
        max_life: Seconds | None,
        id: str | None,
        spec: SpecOptions,
    ) -> Sandbox:
        self._throw_if_closing()
        lease = new_uuid7() if id is None else check_uuid7("id", id)
        timeout_ms = max(1, milliseconds(timeout, "timeout"))
        request: dict[str, Any] = {"id": lease, "run": run, "spec": spec_of(image, spec)}
        request |= {"timeout_ms": timeout_ms, "lease_ms": lease_ms}
        if max_life is not None:
            request["max_life_ms"] = milliseconds(max_life, "max_life")
        try:
            grant = await self._caller.pool("acquire", request, timeout=timeout_ms / 1000 + _SLACK_S)
            confirm = {"sandbox": grant["sandbox"], "generation": grant["generation"]}
            await self._caller.pool("confirm", confirm, timeout=max(1.0, grant["confirm_ms"] / 1000))
            self._throw_if_closing()
        except (asyncio.CancelledError, DeadlineError, ConnectionError, PoolUnavailableError) as error:
            # Whether the pool has heard of it is not known: it shall give it back in any case.
            self._caller.behind(self._caller.pool("release", {"lease": lease, "wait": False}))
            if isinstance(error, DeadlineError):
                message = f"no sandbox within {timeout_ms / 1000:g} s, and no word of the pool"
                raise AcquireTimeoutError(message) from error
            raise
        return self._hold(grant, lease_ms)

    def _hold(self, grant: dict[str, Any], lease_ms: int) -> Sandbox:
        fence = {name: grant[name] for name in ("lease", "generation", "incarnation")}
        target = Target(grant["sandbox"], fence)
        box = Box(self._caller, self._pulse, Lifeline(), target, grant["run"])
        timeline = Timeline(**{name: grant["timeline"][f"{name}_ms"] / 1000 for name in _TIMELINE})
        facts = Grant(grant["lease"], grant["generation"], grant["provider"], timeline)
        sandbox = Sandbox(box, facts, self._release)
        self._held[grant["lease"]] = sandbox
        self._renewer.hold(grant["lease"])
        self._renewer.add(grant["run"], lease_ms / 1000)
        return sandbox

    async def _release(self, sandbox: Sandbox) -> None:
        if sandbox.grant is None:
            await self.release(sandbox=sandbox.id)
            return
        lease = sandbox.grant.lease
        await self._caller.pool("release", {"lease": lease}, timeout=_RELEASE_S, again_after=_RELEASE_AGAIN_S)
        self._let_go(lease)

    def _let_go(self, lease: str) -> None:
        """Of a sandbox that is released: not renewed, and not released again at the exit."""
        sandbox = self._held.pop(lease, None)
        self._renewer.let_go(lease)
        if sandbox is None:
            return
        sandbox._box.lifeline.fail(
            SandboxLostError(f"sandbox {sandbox.id} was released", sandbox=sandbox.id, reason="released")
        )
        if sandbox.run is not None and not any(each.run == sandbox.run for each in self._held.values()):
            self._renewer.remove(sandbox.run)

    def _run_unknown(self, run: str) -> None:
        """From the renewing thread: the pool does not know the run (any more)."""

        def look() -> None:
            for sandbox in self._held.values():
                if sandbox.run == run:
                    self._caller.behind(sandbox._box.inquire())

        try:
            self._loop.call_soon_threadsafe(look)
        except RuntimeError:  # the loop is closed: nobody is left to be told
            return

    def run(self, id: str, *, lease: Seconds | None = None) -> Run:
        """A scope of many sandboxes, which are renewed as one: ``async with mesh.run("train-1") as run``. At its end
        all sandboxes of the run are torn down, also those that other processes acquired in it."""
        lease_ms = self._lease_ms if lease is None else lease_milliseconds(lease)
        return Run(self, check_id("run", id), lease_ms)

    def sandbox(self, id: str) -> Sandbox:
        """A handle by id, of any sandbox of the tenant: without a lease, so neither renewed nor released at the end."""
        box = Box(self._caller, self._pulse, Lifeline(), Target(check_id("sandbox", id), {}), None)
        return Sandbox(box, None, self._release)

    async def list(self, run: str | None = None) -> list[SandboxInfo]:
        """The tenant's sandboxes, or one run's, by id."""
        return [view async for view in self._views(run)]

    async def _views(self, run: str | None) -> AsyncIterator[SandboxInfo]:
        request: dict[str, Any] = {} if run is None else {"run": check_id("run", run)}
        while True:
            page = await self._caller.pool("list", request)
            for view in page["sandboxes"]:
                yield info_of(view)
            if page.get("next") is None:
                return
            request["after"] = page["next"]

    async def status(self) -> dict[str, Any]:
        """The pool in figures; the fields are those of ``status`` in the wire's reference."""
        return await self._caller.pool("status", {})

    async def renew(self, run: str, lease: Seconds | None = None) -> int:
        """Once, by hand; what this connection holds is renewed without it. Returns how many sandboxes live in it."""
        request: dict[str, Any] = {"run": check_id("run", run)}
        if lease is not None:
            request["lease_ms"] = milliseconds(lease, "lease")
        return int((await self._caller.pool("renew", request))["sandboxes"])

    async def release(
        self,
        *,
        sandbox: str | None = None,
        lease: str | None = None,
        run: str | None = None,
        wait: bool = True,
    ) -> int:
        """Ends a sandbox, an acquire or a run, whoever holds it; returns when it is gone, or without ``wait`` when
        the pool has taken the duty. Returns the number of sandboxes that it ended."""
        named = {"sandbox": sandbox, "lease": lease, "run": run}
        request = {name: value for name, value in named.items() if value is not None} | {"wait": wait}
        answer = await self._caller.pool("release", request, timeout=_RELEASE_S, again_after=_RELEASE_AGAIN_S)
        for held, mine in list(self._held.items()):
            if mine.id == sandbox or held == lease or (run is not None and mine.run == run):
                self._let_go(held)
        return int(answer["released"])

    async def close(self) -> None:
        """Releases all that this connection holds, waits until it is gone, and closes. Does nothing the second time."""
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        # A cancelled caller does not leave sandboxes behind half-way.
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        failure: SandmeshError | None = None
        try:
            await self._caller.settle(_SETTLE_S)
            failure = await self._release_all()
            await self._caller.settle(_SETTLE_S)
        finally:
            self._renewer.stop()
            self._pulse.close()
            await self._caller.link.close()
            await asyncio.to_thread(self._renewer.join, 5.0)
        if failure is not None:
            raise failure

    async def _release_all(self) -> SandmeshError | None:
        """Returns the first failure, when all the rest was tried."""
        jobs = []
        if any(each.run == self._own_run for each in self._held.values()):
            jobs.append(self.release(run=self._own_run))
        others = [each for each in self._held.values() if each.run != self._own_run]
        results = await asyncio.gather(*jobs, *map(self._release, others), return_exceptions=True)
        for result in results:
            if isinstance(result, SandmeshError):
                return result
            if isinstance(result, BaseException):
                raise result
        return None

    def _throw_if_closing(self) -> None:
        if self._closing is not None:
            raise ConnectionError("the connection to the mesh is closed")

    async def __aenter__(self) -> Mesh:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await leave_block("the mesh was not closed in order", self.close(), error)


_TIMELINE = ("queued", "created", "enrolled", "ready")
