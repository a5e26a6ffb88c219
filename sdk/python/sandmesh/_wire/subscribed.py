"""Subscriptions whose makers are told where the server refuses them."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import PermissionDeniedError, SandmeshError

Refused = Callable[[SandmeshError], None]


class Made:
    def __init__(self, subject: str, refused: Refused) -> None:
        self.subject = subject
        self.refused = refused
        self.stop: Callable[[], None] = lambda: None


class Subscribed:
    def __init__(self) -> None:
        self._all: dict[Made, None] = {}
        # In the order in which the server gets them, each with a ping behind it, also those that were ended meanwhile.
        self._unanswered: dict[Made, None] = {}

    def add(self, made: Made) -> None:
        self._all[made] = self._unanswered[made] = None

    def answered(self, made: Made) -> None:
        """Its ping was."""
        self._unanswered.pop(made, None)

    def discard(self, made: Made) -> None:
        self._all.pop(made, None)

    def cut(self) -> None:
        """The connection was lost, and no ping is answered any more."""
        self._unanswered.clear()

    def refuse(self, subject: str) -> bool:
        """Those of that subject. Whether there were any."""
        error = PermissionDeniedError(f"this credential may not subscribe {subject}", reason="subscribe")
        concerned = [made for made in self._all if made.subject == subject]
        for made in concerned:
            self._tell(made, error)
        return bool(concerned) or any(made.subject == subject for made in self._unanswered)

    def refuse_one(self, why: str) -> None:
        """The server names no subject where there are too many. It answers in order, so that it is the oldest one whose
        ping was not answered; behind a reconnect, at which all were made anew, it may be any, and all are told."""
        for made in list(self._unanswered)[:1] or list(self._all):
            message = f"this connection may not subscribe {made.subject}: the server says {why}"
            self._tell(made, PermissionDeniedError(message, reason="subscribe"))

    def _tell(self, made: Made, error: SandmeshError) -> None:
        if made in self._all:
            del self._all[made]
            # It would be asked for anew at each reconnect.
            made.stop()
            made.refused(error)
