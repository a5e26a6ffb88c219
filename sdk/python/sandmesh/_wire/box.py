"""One sandbox as the SDK's inside sees it: how to reach it, whether it is still ours, and how to find that out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Literal, Protocol

from ..errors import (
    LeaseLostError,
    NotFoundError,
    SandboxLostError,
    SandmeshError,
    Started,
    UnreachableError,
)
from .caller import Caller, Target, nothing
from .codec import encode
from .losses import Losses
from .news import loss_of
from .silence import Silence
from .subjects import sandbox_subject

_PING_S = 5.0
# The pool did not tell of which run it is: asked again after this.
_LISTEN_AGAIN_S = 5.0
TICK_S = 0.5


class Lifeline:
    """Where the loss of a sandbox is noted, and from where all that wait for it learn."""

    def __init__(self) -> None:
        self.error: SandmeshError | None = None
        self._waiting: set[Callable[[SandmeshError], None]] = set()

    def throw_if_lost(self, started: Started | None = None) -> None:
        """``started``: what is known of the command that was to be asked for or about."""
        if self.error is not None:
            error = self.error if started is None else self.error.with_started(started)
            raise error.with_traceback(None)

    def fail(self, error: SandmeshError) -> None:
        """The first reason stays."""
        if self.error is None:
            self.error = error
            waiting, self._waiting = self._waiting, set()
            for tell in waiting:
                tell(error)

    def on_lost(self, tell: Callable[[SandmeshError], None]) -> Callable[[], None]:
        """For the SDK's own, which raise nothing; a user's: ``Box.on_lost``. What is lost already is told at once: it
        may have become so since that was looked at, while something else was waited for."""
        if self.error is not None:
            tell(self.error)
            return nothing
        self._waiting.add(tell)
        return lambda: self._waiting.discard(tell)


class Waiting(Protocol):
    def on_tick(self, now: float) -> None: ...
    def on_reconnect(self) -> None: ...


class Pulse:
    """One timer for all that waits on a connection: a command costs no timer of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: set[Waiting] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def add(self, waiting: Waiting) -> None:
        self._waiting.add(waiting)
        if self._timer is None:
            self._arm()

    def discard(self, waiting: Waiting) -> None:
        self._waiting.discard(waiting)

    def reconnected(self) -> None:
        for waiting in list(self._waiting):
            waiting.on_reconnect()

    def _arm(self) -> None:
        self._due = time.monotonic() + TICK_S
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        now = time.monotonic()
        late = now - self._due > TICK_S
        self._arm()
        # A loop that was blocked has answers in its socket that nobody has read yet: silence means nothing then.
        if not late:
            for waiting in list(self._waiting):
                waiting.on_tick(now)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class Box:
    def __init__(
        self,
        caller: Caller,
        pulse: Pulse,
        lifeline: Lifeline,
        target: Target,
        run: str | None,
        losses: Losses | None = None,
    ) -> None:
        """``run``: where its holder tells the lifeline of its loss. ``losses``: by which one is heard of who has but
        its id."""
        self.caller = caller
        self.pulse = pulse
        self.lifeline = lifeline
        self.target = target
        self.run = run
        # How many wait for it now.
        self._waiting = 0
        self._losses = losses
        # Of the listening that goes on, in place of which another one may have begun.
        self._listening: object | None = None
        self._unhear: Callable[[], None] = lambda: None
        self._inquiry: asyncio.Task[Literal["here", "away"]] | None = None

    @property
    def id(self) -> str:
        return self.target.sandbox

    def on_lost(self, tell: Callable[[SandmeshError], None]) -> Callable[[], None]:
        """For a user's ``tell``: the loop calls it, when all of the SDK's own have been told, and what it raises goes
        to the loop's exception handler. Raised in their midst it would keep the others waiting, and a release from
        being sent."""
        if self.lifeline.error is not None:
            return nothing
        due: asyncio.Handle | None = None
        waits = True

        def end() -> None:
            nonlocal waits
            if waits:
                waits = False
                self.waiting_ends()

        def lost(error: SandmeshError) -> None:
            nonlocal due
            end()
            due = self.caller.link.loop.call_soon(tell, error)

        self.waiting_begins()
        self.listen()
        unhear = self.lifeline.on_lost(lost)

        def take_back() -> None:
            unhear()
            end()
            if due is not None:
                due.cancel()

        return take_back

    async def call(self, verb: str, request: dict[str, Any], **options: Any) -> dict[str, Any]:
        """One request with one answer; a loss that it tells of goes to the lifeline, and one known of is told."""
        self.lifeline.throw_if_lost()
        silence = Silence(self)
        self.pulse.add(silence)
        try:
            return await self.caller.sandbox(
                self.target,
                verb,
                request,
                heed=self.lifeline.on_lost,
                # It may only be reconnecting; the pool knows whether it is gone.
                on_absent=lambda: self.caller.behind(self.inquire()),
                **options,
            )
        except SandmeshError as error:
            self.note(error)
            if isinstance(error, UnreachableError):
                await self.inquire()
            self.lifeline.throw_if_lost()
            raise
        finally:
            self.pulse.discard(silence)
            silence.end()

    def abort_transfer(self, transfer: str) -> None:
        """Lets the sandbox know that nobody waits for it any more. Where that does not arrive it finds out later."""
        if self._may_begin():
            self.caller.behind(self.call("abort_transfer", {"transfer": transfer}))

    async def give_credit(self, token: str, stream: str, received: int, until: int, *, left: bool = False) -> None:
        """How far the reader of that question is, and may be sent to. Answered by nothing."""
        link = self.caller.link
        message = {"version": 1, "token": token, "stream": stream, "received": received, "until": until}
        if left:
            message["left"] = True
        await link.publish(sandbox_subject(link.tenant, self.id, "credit"), encode(message))

    def say_gone(self, token: str) -> None:
        """The reader of that question is: what was on its way to it would wait for credit, and its command for that,
        for a minute. Where that does not arrive the sandbox finds out by itself."""
        if self._may_begin() and self.lifeline.error is None:
            # A daemon of before does nothing with these offsets, and knows no more.
            self.caller.behind(self.give_credit(token, "stdout", 0, 0, left=True))

    def _may_begin(self) -> bool:
        try:
            self.caller.throw_if_closed()
        except SandmeshError:
            # Also at the loop's end, where what is begun now would be left half-way, with a complaint of asyncio's.
            return False
        return True

    def note(self, error: SandmeshError) -> None:
        """Lets the lifeline know where ``error`` says that the sandbox is not ours any more."""
        if isinstance(error, LeaseLostError | SandboxLostError):
            # What it says of the command that was asked about is not so of the others.
            self.lifeline.fail(error if error.started is None else error.saying(None))

    async def inquire(self) -> Literal["here", "away"]:
        """Asks the sandbox, and where it does not answer the pool, whether it is still there. All share one inquiry."""
        if self._inquiry is None:
            self._inquiry = asyncio.ensure_future(self._inquire())
            self._inquiry.add_done_callback(self._inquired)
        return await asyncio.shield(self._inquiry)

    def _inquired(self, _task: object) -> None:
        self._inquiry = None

    async def _inquire(self) -> Literal["here", "away"]:
        try:
            await self.caller.sandbox(self.target, "ping", {}, timeout=_PING_S, absent=0)
            return "here"
        except SandmeshError as error:
            self.note(error)
            if isinstance(error, UnreachableError):
                await self._ask_pool(self._unlisted)
            return "away"

    def waiting_begins(self) -> None:
        self._waiting += 1

    def waiting_ends(self) -> None:
        self._waiting -= 1
        if self._waiting == 0:
            unhear, self._unhear, self._listening = self._unhear, lambda: None, None
            unhear()

    def listen(self) -> None:
        """A handle by id does not know its run, whose holder hears of losses at once: who waits longer asks for it, and
        hears of them too."""
        if self._losses is not None and self._listening is None:
            self._listening = object()
            self.caller.behind(self._listen(self._losses, self._listening))

    async def _listen(self, losses: Losses, listening: object) -> None:
        asked_at = time.monotonic()
        # Where the pool has none such it may have forgotten it: the sandbox itself is asked first.
        run = await self._ask_pool(lambda: self.caller.behind(self.inquire()))
        if self._listening is not listening or self.lifeline.error is not None:
            return
        if run is None:
            self.caller.link.loop.call_later(_LISTEN_AGAIN_S, self._listen_again, losses, listening)
            return
        unsure, stop = losses.follow(run, self.id, asked_at, self._lost)
        if self._listening is not listening:
            stop()
            return
        self._unhear = stop
        if unsure:
            await self._ask_pool(nothing)

    def _listen_again(self, losses: Losses, listening: object) -> None:
        if self._listening is listening and self.caller.link.closed_error is None:
            self.caller.behind(self._listen(losses, listening))

    async def _ask_pool(self, unlisted: Callable[[], object]) -> str | None:
        """Its run, where it lives; a loss goes to the lifeline. ``unlisted`` is called where the pool has none such."""
        try:
            page = await self.caller.pool("list", {"sandbox": self.id}, timeout=_PING_S, absent=0)
        except SandmeshError:
            # The pool is not there or busy: nothing is known, and it is asked again at the next silence.
            return None
        view = next((view for view in page["sandboxes"] if view["sandbox"] == self.id), None)
        loss = None if view is None else loss_of(view)
        if view is not None and loss is None:
            return str(view["run"]) if "run" in view else None
        if loss is not None:
            self._lost(loss)
        # An older pool lists them all.
        elif page.get("next") is None:
            unlisted()
        return None

    def _unlisted(self) -> None:
        if self.run is not None:
            self._lost("deleted")
        else:
            self.lifeline.fail(NotFoundError(f"there is no sandbox {self.id}", sandbox=self.id))

    def _lost(self, reason: str) -> None:
        message = f"sandbox {self.id} is not there any more ({reason})"
        self.lifeline.fail(SandboxLostError(message, sandbox=self.id, reason=reason))
