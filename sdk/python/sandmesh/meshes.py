"""The mesh as a client sees it: connecting, acquiring, runs, and leaving nothing behind."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._wire.acquire import acquire
from ._wire.arguments import check_arguments
from ._wire.box import Box, Lifeline, Pulse
from ._wire.caller import Caller, Target
from ._wire.handle import Handle
from ._wire.ids import check_id, check_uuid7, new_run_id, new_uuid7
from ._wire.link import connect_link
from ._wire.losses import Losses
from ._wire.opening import Opening, leave_block
from ._wire.renewal import Renewer
from ._wire.tenure import Tenure
from .burst import acquire_many
from .closing import Closing, while_present
from .errors import NotFoundError, PermissionDeniedError, SandboxLostError
from .events import Event, What, events
from .runs import Run
from .sandboxes import Sandbox, SandboxInfo, grant_of, info_of
from .settings import Settings, resolve_settings
from .specs import SpecOptions, spec_of
from .units import Seconds, lease_milliseconds, milliseconds, time_limit

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Releases are verified by the provider, which may take its time.
_RELEASE_S = 120.0
_RELEASE_AGAIN_S = 10.0


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
) -> Opening[Mesh]:
    """``async with connect() as mesh`` (or ``mesh = await connect()``, then ``await mesh.close()``). Left out, the
    address and the credentials (the path of a .creds file, or its text) come from SANDMESH_URL and SANDMESH_CREDS,
    or from the mesh that is up on this machine. ``ca``: the path of a PEM file, or its text: the CA that signed the
    server's certificate, and no other is trusted then; default SANDMESH_CA (a path), else what the machine trusts.
    ``run``: of acquires that name none; it is not ended as a whole when the connection closes, only what was acquired
    here. Default: a new one, of this connection's own. ``lease``: how long sandboxes outlive a process that was killed.
    ``timeout``: of all of it, a credential or CA that comes by a pipe among it. Raises NoMeshError, ConnectionError,
    PermissionDeniedError, InvalidRequestError, DeadlineError (of such a pipe)."""

    async def open_mesh() -> Mesh:
        lease_ms, timeout_s = lease_milliseconds(lease), time_limit(timeout, "timeout") / 1000
        named = None if run is None else check_id("run", run)
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        settings = await resolve_settings(url, credentials, tenant, user, ca=ca, until=until)
        link = await connect_link(settings, f"sandmesh-python-{os.getpid()}", max(until - loop.time(), 0.001))
        return Mesh(settings, Caller(link), lease_ms, named)

    return Opening(open_mesh())


class Mesh(Handle):
    """From ``connect``. Belongs to the event loop that it was made in."""

    def __init__(self, settings: Settings, caller: Caller, lease_ms: int, run: str | None) -> None:
        self._caller = caller
        self._lease_ms = lease_ms
        self._loop = caller.link.loop
        self._pulse = Pulse(self._loop)
        caller.link.on_reconnect(self._pulse.reconnected)
        self._default_run = new_run_id() if run is None else run
        own_run = self._default_run if run is None else None
        self._renewer = Renewer(settings, own_run, self._run_unknown, self._run_lapsed)
        self._tenure = Tenure(caller, self._renewer)
        self._losses = Losses(caller)
        self._closing = Closing(caller, self._pulse, self._tenure, self._renewer, self.release)

    def __repr__(self) -> str:
        return f"<Mesh at {self._caller.link.settings.servers} as {self.tenant}/{self.user}>"

    @property
    def tenant(self) -> str:
        return self._caller.link.tenant

    @property
    def user(self) -> str:
        return self._caller.link.user

    @property
    def default_run(self) -> str:
        """The run of acquires that name none: of this connection alone, unless it was named in ``connect``."""
        return self._default_run

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
    ) -> Opening[Sandbox]:
        """One sandbox, usable when it is returned: ``async with await mesh.acquire(image="host") as box``. ``run``:
        default ``default_run``. ``lease``: how long the run lives on when this process is gone, 1 s to 24 h; default
        the connection's. ``max_life``: ended after this whatever is renewed (default a day).
        ``id`` (UUIDv7): the same one again attaches to the first try. Cancelled or timed out, it leaves nothing.
        Raises AcquireTimeoutError, QueueFullError, QuotaExceededError, ImageError, UnsupportedError,
        BootFailedError, …"""
        run = self._default_run if run is None else run
        return Opening(self._acquire(image, run, self._lease_ms, lease, timeout, max_life, id, spec))

    async def acquire_many(
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
    ) -> list[Sandbox]:
        """Many sandboxes. Returns when all are settled, those that came; where fewer than ``at_least`` (default all)
        came, these are released again and the first error is raised. ``at_once``: that many are asked for at a time;
        each has ``timeout`` from when it is asked for. Cancelled, it leaves nothing."""

        async def one() -> Sandbox:
            return await self.acquire(image, run=run, timeout=timeout, lease=lease, max_life=max_life, **spec)

        return await acquire_many(one, count, at_least, at_once)

    async def _acquire(
        self,
        image: str,
        run: str,
        default_lease_ms: int,
        lease: Seconds | None,
        timeout: Seconds,
        max_life: Seconds | None,
        id: str | None,
        spec: SpecOptions,
    ) -> Sandbox:
        self._closing.throw_if_begun()
        lease_ms = default_lease_ms if lease is None else lease_milliseconds(lease)
        chosen = new_uuid7() if id is None else check_uuid7("id", id)
        timeout_ms = time_limit(timeout, "timeout")
        request: dict[str, Any] = {"id": chosen, "run": run, "spec": spec_of(image, spec)}
        request |= {"timeout_ms": timeout_ms, "lease_ms": lease_ms, "renews": True}
        if max_life is not None:
            request["max_life_ms"] = milliseconds(max_life, "max_life")
        check_arguments("pool.acquire.request", request)
        return await self._closing.acquire(self._ask(run, lease_ms, request, id is not None))

    async def _ask(self, run: str, lease_ms: int, request: dict[str, Any], chosen_id: bool) -> Sandbox:
        self._tenure.enter(run, lease_ms)
        grant: dict[str, Any] | None = None
        try:
            grant = await acquire(self._caller, self._renewer, request, chosen_id)
        finally:
            lifeline = self._tenure.leave(run, grant)
        fence = {name: grant[name] for name in ("lease", "generation", "incarnation")}
        box = Box(self._caller, self._pulse, lifeline, Target(grant["sandbox"], fence), run)
        return Sandbox(box, grant_of(grant), self)

    async def _release(self, sandbox: Sandbox) -> None:
        """For the sandbox itself."""
        self._closing.check_home()
        if self._caller.link.home.ending and sandbox.grant is not None:
            return  # as what else is held, at the process's exit
        box = sandbox._box
        box.lifeline.fail(SandboxLostError(f"sandbox {box.id} was released", sandbox=box.id, reason="released"))
        if sandbox.grant is None:
            await self.release(sandbox=box.id)
        elif self._closing.begun:
            await self._closing.close()
        else:
            await self.release(lease=sandbox.grant.lease)

    async def _close_run(self, run: str) -> None:
        self._closing.check_home()
        # Closing has released what this connection held of it, or is doing so.
        if self._closing.begun:
            await self._closing.close()
        elif self._caller.link.home.ending:
            self._renewer.end_at_exit(run)
        else:
            await self.release(run=run)

    def _detach(self, sandbox: Sandbox) -> None:
        if sandbox.run is not None:
            self._tenure.forget(sandbox.id, sandbox.run)
        if sandbox.run == self._default_run:
            self._renewer.disown()

    def _run_unknown(self, run: str) -> None:
        """The pool does not know the run (any more)."""

        def look() -> None:
            for held in self._tenure.held:
                if held.run == run:
                    target, lifeline = Target(held.sandbox, {"lease": held.lease}), held.lifeline
                    self._caller.behind(Box(self._caller, self._pulse, lifeline, target, run).inquire())

        self._from_renewals(look)

    def _run_lapsed(self, run: str, lease_s: float, renewed_at: float) -> None:
        self._from_renewals(self._tenure.lapsed, run, lease_s, renewed_at)

    def _from_renewals(self, tell: Callable[..., None], *what: Any) -> None:
        """What the renewing thread tells goes to the loop's own."""
        try:
            self._loop.call_soon_threadsafe(tell, *what)
        except RuntimeError:  # the loop is closed: nobody is left to be told
            return

    def run(self, id: str | None = None, *, lease: Seconds | None = None) -> Run:
        """A scope of many sandboxes, which are renewed as one: ``async with mesh.run("train-1") as run``. At its end
        all sandboxes of the run are torn down, also those that other processes acquired in it. Default: a new one."""
        lease_ms = self._lease_ms if lease is None else lease_milliseconds(lease)
        return Run(self, new_run_id() if id is None else check_id("run", id), lease_ms)

    def sandbox(self, id: str) -> Sandbox:
        """A handle by id, of any sandbox of the tenant: without a lease, so neither renewed nor released at the end."""
        target = Target(check_id("sandbox", id), {})
        box = Box(self._caller, self._pulse, Lifeline(), target, None, self._losses)
        return Sandbox(box, None, self)

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
        must_exist: bool = False,
    ) -> int:
        """Ends a sandbox, an acquire or a run, whoever holds it; returns when it is gone, or without ``wait`` when
        the pool has taken the duty. Returns the number of sandboxes that it ended. Releasing what is gone succeeds;
        with ``must_exist`` a sandbox or lease that the pool never had, or that ended so long ago that it is forgotten,
        is a NotFoundError. Raises ConnectionError where the server has been away for 10 s; the lease ends it then."""
        self._caller.link.home.check()
        named = {"sandbox": sandbox, "lease": lease, "run": run}
        request = {name: value for name, value in named.items() if value is not None} | {"wait": wait}
        check_arguments("pool.release.request", request)
        # Asked again, its answer counts what the first one ended.
        request["id"] = new_uuid7()
        ours = self._tenure.named(sandbox, lease, run)
        # The word of its end may come long before it is gone: who closes, or ends, meanwhile waits for it there.
        for held in ours:
            self._renewer.open(held.lease)
        asked = self._caller.pool("release", request, timeout=_RELEASE_S, again_after=_RELEASE_AGAIN_S)
        answer = await while_present(self._caller, asked)
        for held in ours:
            message = f"sandbox {held.sandbox} was released"
            held.lifeline.fail(SandboxLostError(message, sandbox=held.sandbox, reason="released"))
            self._tenure.forget(held.sandbox, held.run)
            self._renewer.settled(held.lease)
        if lease is not None:
            self._renewer.settled(lease)
        if must_exist and answer.get("known") == 0:
            kind, name = next((kind, name) for kind, name in named.items() if name is not None)
            raise NotFoundError(f"there is no {kind} {name}", sandbox=sandbox)
        return int(answer["released"])

    def events(
        self, *, run: str | None = None, sandbox: str | None = None, what: Collection[What] | None = None
    ) -> AsyncGenerator[Event, None]:
        """What happens in the mesh, from the first step of the loop on; endless. Where some may be missing, one comes
        whose ``what`` is ``missed``, also where others were asked for: when the connection was lost and is back, and
        where 10,000 wait to be read, instead of their older half. Who waits for an event looks with ``list()`` then.
        Raises InvalidRequestError at once, ConnectionError, PermissionDeniedError (the server refuses to tell)."""
        return events(self._caller, run, sandbox, what)

    async def drain(self, on: bool = True, *, release_all: bool = False) -> dict[str, Any]:
        """Stops new acquires (``on=False``: allows them again), and with ``release_all`` ends all sandboxes. For an
        operator; raises PermissionDeniedError for others."""
        try:
            return await self._caller.pool("drain", {"on": on, "release_all": release_all}, timeout=_RELEASE_S)
        except PermissionDeniedError as error:
            if error.reason != "publish":
                raise
            raise PermissionDeniedError(f"only an operator may drain the pool: {error}", reason="publish") from error

    async def close(self) -> None:
        """Releases all that this connection holds, waits until it is gone, and closes. Does nothing the second time.
        Raises, when it is closed, what kept a release from being verified, naming the sandboxes; where the server has
        gone that is after 10 s; and ConnectionError in another event loop, where nothing is done. What was not released
        is tried again at the process's exit, if that comes within its lease."""
        if not self._caller.link.home.foreign:
            await self._closing.close()

    def _left_by(self, error: BaseException | None) -> None:
        self._closing.left_by(error)

    async def __aenter__(self) -> Mesh:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left_by(error)
        await leave_block("the mesh was not closed in order", self.close(), error)
