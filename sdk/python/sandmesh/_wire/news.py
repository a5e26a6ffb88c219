"""What the pool tells of the sandboxes of a run."""

from __future__ import annotations

from typing import Any

from .event_hub import EventHub
from .link import Link
from .subjects import event_wildcard, run_event_subject, run_event_wildcard

_LOSSES = ("lost", "expired", "released", "failed")
_ENDED = ("releasing", "gone", "lost", "failed")


def loss_of(view: dict[str, Any]) -> str | None:
    """Why a sandbox that the pool lists is not there any more; None while it is."""
    return str(view.get("reason", view["state"])) if view["state"] in _ENDED else None


class News:
    """One for each connection."""

    def __init__(self, link: Link) -> None:
        tenant = link.tenant

        def losses(run: str | None) -> list[str]:
            if run is None:
                return [run_event_wildcard(tenant, "*", what) for what in _LOSSES]
            return [run_event_subject(tenant, run, what) for what in _LOSSES]

        def events(run: str | None) -> list[str]:
            return [event_wildcard(tenant) if run is None else run_event_wildcard(tenant, run, "*")]

        self.losses = EventHub(link, losses)
        self.events = EventHub(link, events)
