"""What one connection holds: its runs with their sandboxes, renewed while there are any, and told of losses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import InvalidRequestError, SandboxLostError
from .box import Lifeline
from .caller import Caller
from .codec import decode
from .renewal import Renewer
from .schema import check
from .subjects import run_event_subject

_LOSSES = ("lost", "expired", "released", "failed")


@dataclass
class Held:
    sandbox: str
    lease: str
    run: str
    lifeline: Lifeline = field(default_factory=Lifeline)


class _Run:
    def __init__(self) -> None:
        self.acquiring = 0
        self.held: dict[str, Held] = {}
        # Lost before its grant was here: the event overtook it.
        self.early: dict[str, str] = {}
        self.unsubscribe: list[Callable[[], None]] = []


class Tenure:
    def __init__(self, caller: Caller, renewer: Renewer) -> None:
        self._caller = caller
        self._renewer = renewer
        self._runs: dict[str, _Run] = {}

    @property
    def held(self) -> list[Held]:
        return [held for run in self._runs.values() for held in run.held.values()]

    async def enter(self, run: str, lease_ms: int) -> None:
        """An acquire begins: from now on the run is renewed and its losses are heard."""
        state = self._runs.get(run)
        if state is None:
            state = self._runs[run] = _Run()
        state.acquiring += 1
        self._renewer.add(run, lease_ms / 1000)
        if state.acquiring + len(state.held) == 1:
            link = self._caller.link
            try:
                for what in _LOSSES:
                    subject = run_event_subject(link.tenant, run, what)
                    hear = await link.subscribe(subject, lambda _subject, body: self._happened(run, body))
                    state.unsubscribe.append(hear)
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
            state.held[held.sandbox] = held
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
            self._renewer.let_go(held.lease)
            self._settle(run, state)

    def _happened(self, run: str, body: bytes) -> None:
        try:
            event = check("event.pool", decode(body))
        except InvalidRequestError:
            return  # of a newer pool: what it is about is found out by asking
        state, sandbox = self._runs.get(run), event.get("sandbox")
        if state is None or sandbox is None:
            return
        reason = event.get("reason", event["what"])
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
        for unsubscribe in state.unsubscribe:
            unsubscribe()

    async def quiet(self) -> None:
        """Returns when no acquire is under way."""
        while any(state.acquiring for state in self._runs.values()):
            await asyncio.sleep(0.01)
