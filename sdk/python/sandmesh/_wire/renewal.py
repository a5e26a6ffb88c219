"""Keeps leases alive from a thread, an event loop and a connection of its own: a trainer whose loop is blocked for
minutes loses nothing. At the process's exit the same thread releases what was not released."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from ..errors import ConnectionError, NotFoundError, SandmeshError
from ..settings import Settings
from .caller import Caller
from .exits import EXIT_S, guard, unguard
from .link import Link, connect_link

log = logging.getLogger("sandmesh")

DEAD_MAN_S = 10.0
"""A daemon outlives its lease by some seconds, so that the pool comes first; after these it has ended itself."""


def next_renewal(lease_s: float) -> float:
    """A third of the lease, a fifth of it earlier at random, so that the runs of a burst spread out."""
    return lease_s / 3 * random.uniform(0.8, 1)


def next_try(lease_s: float) -> float:
    return min(1.0, lease_s / 10)


@dataclass
class _Run:
    lease_s: float
    due: float
    renewed_at: float
    """When the last renewal was sent that arrived, or may have."""


class _Executor(ThreadPoolExecutor):
    """For host names, which asyncio looks up in threads. Of those the interpreter has ended its own, and from 3.12 on
    starts none, before it comes to ``atexit``: from then on the renewing thread, which does nothing else any more, does
    such work itself. Without that a connection that was lost would not come back to a server that has a name."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError:
            done: Future[Any] = Future()
            try:
                done.set_result(fn(*args, **kwargs))
            except Exception as error:
                done.set_exception(error)
            return done


class Renewer:
    """``on_unknown`` is called from the renewing thread when the pool does not know a run; ``on_lapsed``, with the
    lease and when it was renewed last, when with the server away none has arrived for the whole lease and longer."""

    def __init__(
        self,
        settings: Settings,
        own_run: str | None,
        on_unknown: Callable[[str], None],
        on_lapsed: Callable[[str, float, float], None],
    ) -> None:
        self._settings = settings
        self.own_run = own_run
        """Released as a whole, which costs one message; None where it may not be."""
        self._on_unknown = on_unknown
        self._on_lapsed = on_lapsed
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}
        self._leases: dict[str, str] = {}
        self._open: set[str] = set()
        self._ended: set[str] = set()
        self._exiting = False
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._caller: Caller | None = None
        self.stopping = False
        self._rests_until = math.inf
        self._tried = False
        self._running = threading.Event()
        self.renewals = 0
        """Answered ones so far, for tests and curiosity."""
        guard(self)

    def open(self, lease: str) -> None:
        """From before an acquire is sent until it is held, or the pool has nothing of it any more (``settled``):
        released at the process's exit. Raises ConnectionError when that has begun, which would not see it any more."""
        with self._lock:
            if self._exiting:
                raise ConnectionError("the process is ending")
            self._open.add(lease)

    def settled(self, lease: str) -> None:
        with self._lock:
            self._open.discard(lease)

    def hold(self, lease: str, run: str) -> None:
        """Released at the process's exit, unless ``let_go`` comes first."""
        with self._lock:
            self._open.discard(lease)
            self._leases[lease] = run

    def let_go(self, lease: str) -> None:
        with self._lock:
            self._leases.pop(lease, None)

    def end_at_exit(self, run: str) -> None:
        """The whole run, also what others acquired in it."""
        with self._lock:
            self._ended.add(run)

    def disown(self) -> None:
        """The connection's own run is not to be released as a whole: a sandbox in it was detached."""
        self.own_run = None

    def add(self, run: str, lease_s: float) -> None:
        """Renews ``run`` each third of its lease from now on. Starts the thread at the first call."""
        with self._lock:
            known = self._runs.get(run)
            if known is None or known.lease_s != lease_s:
                self._runs[run] = _Run(lease_s, time.monotonic() + next_renewal(lease_s), time.monotonic())
            if self._thread is None and not self.stopping:
                # A daemon: a forgotten mesh must not keep the process from ending.
                self._thread = threading.Thread(target=self._work, name="sandmesh-renewal", daemon=True)
                self._thread.start()
        self._notify()

    def remove(self, run: str) -> None:
        with self._lock:
            self._runs.pop(run, None)

    def stop(self) -> None:
        """Ends the thread; does not wait for it. Nothing is renewed or released any more."""
        self.stopping = True
        unguard(self)
        self._notify()

    def rest(self, tried: bool) -> None:
        """Renews nothing any more; what is held is released at the process's exit, as long as its lease may live.
        ``tried``: with the server away it is not waited for again."""
        with self._lock:
            self._tried = tried
            longest = max((run.lease_s for run in self._runs.values()), default=0.0)
            self._runs.clear()
            self._rests_until = time.monotonic() + longest + DEAD_MAN_S
        self._notify()

    def join(self, timeout: float) -> None:
        if self._thread is not None:
            self._thread.join(timeout)

    def _notify(self) -> None:
        loop, wake = self._loop, self._wake
        if loop is not None and wake is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(wake.set)
            except RuntimeError:  # closed between the question and the call
                return

    def _work(self) -> None:
        try:
            asyncio.run(self._renew_all())
        except Exception:
            log.exception("the renewing thread died; leases will lapse")

    async def _renew_all(self) -> None:
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.set_default_executor(_Executor(thread_name_prefix="sandmesh-renewal"))
        self._running.set()
        link: Link | None = None
        try:
            while not self.stopping and time.monotonic() < self._rests_until:
                if link is None or link.closed_error is not None:
                    link = await self._connect()
                    self._caller = None if link is None else Caller(link)
                caller = self._caller
                now = time.monotonic()
                with self._lock:
                    due = [(name, run) for name, run in self._runs.items() if run.due <= now]
                if caller is None:
                    self._tell_lapsed(due)
                elif due:
                    await asyncio.gather(*(self._renew(caller, *each) for each in due))
                await self._pause()
        finally:
            self._caller = None
            if link is not None:
                await link.close()

    async def _connect(self) -> Link | None:
        try:
            return await connect_link(self._settings, "sandmesh-renewal", 5)
        except SandmeshError as error:
            log.warning("renewal cannot connect, trying again: %s", error)
            await asyncio.sleep(0.5)
            return None

    async def _pause(self) -> None:
        assert self._wake is not None
        with self._lock:
            dues = [run.due for run in self._runs.values()]
            next_due = min(*dues, self._rests_until, time.monotonic() + 60)
        self._wake.clear()
        if self.stopping:
            return
        try:
            # Shortly after a failed connect or renewal the next try is due at once: never spin.
            await asyncio.wait_for(self._wake.wait(), max(0.05, next_due - time.monotonic()))
        except asyncio.TimeoutError:
            pass

    async def _renew(self, caller: Caller, name: str, run: _Run) -> None:
        asked_at = time.monotonic()
        request = {"run": name, "lease_ms": round(run.lease_s * 1000)}
        patience = min(5.0, run.lease_s / 3)
        # It may arrive, whether or not an answer comes; what is sent while the server is away does not.
        away = not caller.link.connected
        try:
            await caller.pool("renew", request, timeout=patience, again_after=patience / 2, absent=patience / 2)
            run.due, run.renewed_at = asked_at + next_renewal(run.lease_s), asked_at
            self.renewals += 1
        except NotFoundError:
            run.due = time.monotonic() + next_renewal(run.lease_s)
            self._on_unknown(name)
        except SandmeshError as error:
            # The daemons live on for the lease's time, and the pool may be back before: go on asking.
            log.warning("run %s could not be renewed, trying again: %s", name, error)
            run.due = time.monotonic() + next_try(run.lease_s)
            if away:
                self._tell_lapsed([(name, run)])
            else:
                run.renewed_at = asked_at

    def _tell_lapsed(self, unrenewed: list[tuple[str, _Run]]) -> None:
        for name, run in unrenewed:
            if time.monotonic() - run.renewed_at >= run.lease_s + DEAD_MAN_S:
                self._on_lapsed(name, run.lease_s, run.renewed_at)

    def release_at_exit(self, timeout: float) -> None:
        """From the exiting main thread: releases what is still held, or gives up after ``timeout``."""
        with self._lock:
            self._exiting = True
            away = self._caller is None or not self._caller.link.connected
        orders = [] if self._tried and away else self.orders()
        # A program that ends at once may be faster than the thread's start.
        if orders and self._running.wait(timeout) and self._loop is not None and not self._loop.is_closed():
            future = asyncio.run_coroutine_threadsafe(self._release(orders), self._loop)
            try:
                future.result(timeout)
            except Exception as error:
                # None where another thread has released them meanwhile.
                if count := len(self._leases.keys() | self._open):
                    why = str(error) or f"no answer within {timeout:.0f} s"
                    log.warning("%d sandboxes were not released; their leases lapse: %s", count, why)
        self.stop()
        self.join(2)

    def orders(self) -> list[dict[str, str]]:
        """What must be released for nothing to be left. Our own run first, as a whole, so that of it nothing begins
        because something else was released; and by its id each acquire that is under way, also of that run, whose
        release may overtake it."""
        with self._lock:
            whole = set(self._ended)
            if self.own_run is not None and self.own_run in self._leases.values():
                whole.add(self.own_run)
            held = [lease for lease, run in self._leases.items() if run not in whole]
            # What is held and being released is both.
            leases = dict.fromkeys([*held, *self._open])
            return [{"run": run} for run in whole] + [{"lease": lease} for lease in leases]

    async def _release(self, orders: list[dict[str, str]]) -> None:
        while self._caller is None:  # still connecting; the one who waits for this gives up in time
            await asyncio.sleep(0.02)
        caller = self._caller
        asked = [caller.pool("release", order, timeout=EXIT_S) for order in orders]
        results = await asyncio.gather(*asked, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
