"""What the pool tells of the sandboxes of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import InvalidRequestError
from .codec import decode
from .link import Link
from .schema import check
from .subjects import run_event_subject

_LOSSES = ("lost", "expired", "released", "failed")
_ENDED = ("releasing", "gone", "lost", "failed")


def loss_of(view: dict[str, Any]) -> str | None:
    """Why a sandbox that the pool lists is not there any more; None while it is."""
    return str(view.get("reason", view["state"])) if view["state"] in _ENDED else None


async def hear_losses(link: Link, run: str, tell: Callable[[str, str], None]) -> Callable[[], None]:
    """Calls ``tell`` with each sandbox of the run that ends, and why. Returns what ends it."""

    def take(_subject: str, body: bytes) -> None:
        try:
            event = check("event.pool", decode(body))
        except InvalidRequestError:
            return  # of a newer pool: what it is about is found out by asking
        if event.get("sandbox") is not None:
            tell(event["sandbox"], event.get("reason", event["what"]))

    stops: list[Callable[[], None]] = []

    def unhear() -> None:
        for stop in stops:
            stop()

    try:
        for what in _LOSSES:
            stops.append(await link.subscribe(run_event_subject(link.tenant, run, what), take))
    except BaseException:
        unhear()
        raise
    return unhear
