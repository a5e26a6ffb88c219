"""What one connection holds: its runs with their sandboxes, renewed while there are any, and told of losses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import SandboxLostError
from .box import Lifeline
from .caller import Caller
from .losses import hear_losses
from .renewal import DEAD_MAN_S, Renewer


@dataclass
class Held:
    sandbox: str
    lease: str
    run: str
    lifeline: Lifeline = field(default_factory=Lifeline)
    since: float = field(default_factory=time.monotonic)


class _Run:
    def __init__(self) -> None:
        self.acquiring = 0
        self.held: dict[str, Held] = {}
        # Lost before its grant was here: the event overtook it.
        self.early: dict[str, str] = {}
        self.unhear: Callable[[], None] = lambda: None


class Tenure:
    def __init__(self, caller: Caller, renewer: Renewer) -> None:
        self._caller = caller
        self._renewer = renewer
        self._runs: dict[str, _Run] = {}
        self._leases: dict[str, Held] = {}

    @property
    def held(self) -> list[Held]:
        return list(self._leases.values())

    def named(self, sandbox: str | None, lease: str | None, run: str | None) -> list[Held]:
        """What is held of what a release names. By its lease it is not looked for among all: thousands are released one
        by one."""
        if lease is not None:
            return [self._leases[lease]] if lease in self._leases else []
        return [held for held in self.held if held.sandbox == sandbox or held.run == run]

    def enter(self, run: str, lease_ms: int) -> None:
        """An acquire begins: from now on the run is renewed and its losses are heard."""
        state = self._runs.get(run)
        if state is None:
            state = self._runs[run] = _Run()
        state.acquiring += 1
        self._renewer.add(run, lease_ms / 1000)
        if state.acquiring + len(state.held) == 1:
            try:
                state.unhear = hear_losses(self._caller, run, lambda *loss: self._happened(run, *loss), state.held)
            except BaseException:
                self.leave(run, None)
                raise

    def leave(self, run: str, grant: dict[str, Any] | None) -> Lifeline:
        """The acquire ended, with a grant or without."""
        state = self._runs[run]
        state.acquiring -= 1
        held = None
        if grant is not None:
            held = Held(grant["sandbox"], grant["lease"], run)
            state.held[held.sandbox] = self._leases[held.lease] = held
            self._renewer.hold(held.lease, run)
            if held.sandbox in state.early:
                self._lose(state, held.sandbox, state.early[held.sandbox])
        if state.acquiring == 0:
            state.early.clear()
        self._settle(run, state)
        return Lifeline() if held is None else held.lifeline

    def forget(self, sandbox: str, run: str) -> None:
        """Not ours any more: released, detached or lost. Neither renewed nor released at the exit."""
        state = self._runs.get(run)
        held = None if state is None else state.held.pop(sandbox, None)
        if state is not None and held is not None:
            self._leases.pop(held.lease, None)
            self._renewer.let_go(held.lease)
            self._settle(run, state)

    def lapsed(self, run: str, lease_s: float, renewed_at: float) -> None:
        """No renewal has arrived since: what was acquired before has ended. Still held, so that closing releases what
        may have lived on after all."""
        for held in self.held:
            unrenewed = time.monotonic() - max(renewed_at, held.since)
            if held.run == run and unrenewed >= lease_s + DEAD_MAN_S:
                message = f"sandbox {held.sandbox} is lost: its lease of {lease_s:g} s could not be renewed for"
                message += f" {unrenewed:.0f} s, with the server away"
                held.lifeline.fail(SandboxLostError(message, sandbox=held.sandbox, reason="expired"))

    def _happened(self, run: str, sandbox: str, reason: str) -> None:
        state = self._runs.get(run)
        if state is None:
            return
        if sandbox in state.held:
            self._lose(state, sandbox, reason)
        elif state.acquiring > 0:
            state.early[sandbox] = reason

    def _lose(self, state: _Run, sandbox: str, reason: str) -> None:
        held = state.held[sandbox]
        message = f"sandbox {sandbox} is not there any more ({reason})"
        held.lifeline.fail(SandboxLostError(message, sandbox=sandbox, reason=reason))
        self.forget(sandbox, held.run)

    def _settle(self, run: str, state: _Run) -> None:
        """A run of which we hold nothing is not renewed."""
        if state.acquiring > 0 or state.held or self._runs.get(run) is not state:
            return
        del self._runs[run]
        self._renewer.remove(run)
        state.unhear()

    async def quiet(self) -> None:
        """Returns when no acquire is under way."""
        while any(state.acquiring for state in self._runs.values()):
            await asyncio.sleep(0.01)
