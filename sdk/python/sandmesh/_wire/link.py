"""One NATS connection with its request multiplexer: all answers come on one subscription. With client.py the only
importer of ``nats``, whose own requests use ``_INBOX``, which no user may subscribe to (broker/server/permissions.ts).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
import ssl
from collections.abc import Callable
from typing import Any

import nats.errors
from nats.aio.msg import Msg

from ..errors import (
    ConnectionError,
    DeadlineError,
    PermissionDeniedError,
    SandmeshError,
    TooLargeError,
    UnreachableError,
)
from ..settings import Settings
from .absence import Absence
from .answers import AnswerStream, Asked
from .client import TOO_MANY_SUBSCRIPTIONS, NatsClient
from .home import Home
from .subjects import reply_subject, reply_wildcard
from .subscribed import Made, Refused, Subscribed

log = logging.getLogger("sandmesh")

Heed = Callable[[Callable[[SandmeshError], None]], Callable[[], None]]
"""Calls what it is given when the waiting is over for another reason; returns what takes that back."""

# A server that hangs ends no connection: two of these later it is given up.
PING_INTERVAL_S = 5
_REFUSAL = re.compile("authorization|authentication|revoked", re.IGNORECASE)
_VIOLATION = re.compile(r'permissions violation for publish to "([^"]+)"', re.IGNORECASE)
_SUBSCRIPTION = re.compile(r'permissions violation for subscription to "([^"]+)"', re.IGNORECASE)


class Link:
    """Made by ``connect_link``; bound to the event loop that it was made in."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.tenant = settings.tenant
        self.user = settings.user
        self._may_ask = settings.credentials.tag("role") != "observer"
        self.home = Home()
        self.loop = self.home.loop
        self.closed_error: SandmeshError | None = None
        """Set when the connection is closed for good."""
        self._nc = NatsClient()
        self.asked = Asked(self.loop)
        self._subscribed = Subscribed()
        self._reconnect_handlers: set[Callable[[], None]] = set()
        self._end_handlers: set[Callable[[], None]] = set()
        self._refused: asyncio.Future[SandmeshError] = self.loop.create_future()
        """Why connecting failed."""
        self._denied: SandmeshError | None = None
        """Why the server refused the credential at a return to it, until it takes one again."""
        self._credentials = settings.credentials
        self._last_error: BaseException | None = None
        self._connecting = True
        self._refusals = 0
        self.absence = Absence(self.loop, self._server_gone)
        self._closing = False

    @property
    def max_payload(self) -> int:
        return int(self._nc.max_payload)

    @property
    def connected(self) -> bool:
        return bool(self._nc.is_connected)

    def on_reconnect(self, handler: Callable[[], None]) -> Callable[[], None]:
        """``handler`` is called each time the connection is back: what was published meanwhile did not arrive. Returns
        what ends that."""
        self._reconnect_handlers.add(handler)
        return lambda: self._reconnect_handlers.discard(handler)

    def on_end(self, handler: Callable[[], None]) -> Callable[[], None]:
        """``handler`` is called when the connection is closed for good, or its server gone. Returns what ends that."""
        self._end_handlers.add(handler)
        return lambda: self._end_handlers.discard(handler)

    def subscribe(self, subject: str, handler: Callable[[str, bytes], None], refused: Refused) -> Callable[[], None]:
        """Subscribes in front of all that is sent later; returns what ends it. ``refused`` is called once where the
        server refuses it, which ends it: with PermissionDeniedError (reason ``subscribe``), also where the connection
        has as many as it may have. Raises ConnectionError."""
        self.check_usable()
        if self._nc.is_closed:
            raise ConnectionError("the connection to the mesh is closed", reason="closed")
        made = Made(subject, refused)
        self._subscribed.add(made)

        async def take(message: Msg) -> None:
            handler(message.subject, message.data)

        subscription = self._nc.listen(subject, take, lambda: self._subscribed.answered(made))

        def end() -> None:
            self._subscribed.discard(made)
            if not self.loop.is_closed():
                self._nc.end(subscription)

        made.stop = end
        return end

    async def answers(self, timeout: float) -> bool:
        """Whether the server is there, by a round trip."""
        try:
            await self._nc.flush(max(1, round(timeout)))
            return self.connected
        except (nats.errors.Error, OSError):
            return False

    def check_usable(self) -> None:
        if self.closed_error is not None:
            raise self.closed_error.with_traceback(None)
        self.home.check()
        if self.home.ending:
            raise ConnectionError("the event loop ends, and with it the connection to the mesh", reason="closed")
        if self._denied is not None and not self.connected:
            raise self._denied.with_traceback(None)
        if self.absence.error is not None:
            raise self.absence.error

    async def publish(self, subject: str, data: bytes, reply: str = "") -> None:
        self.check_usable()
        if len(data) > self.max_payload:
            raise TooLargeError(f"the message has {len(data)} bytes, the server takes {self.max_payload}")
        try:
            await self._nc.publish(subject, data, reply)
        except (nats.errors.Error, OSError) as error:
            raise ConnectionError(f"the connection to the mesh is down: {error}") from error

    async def open(self, responder: str, subject: str, data: bytes) -> AnswerStream:
        """Sends a request; its answers are read from the stream, which must be closed."""
        if not self._may_ask:
            # Of the server's two refusals the first would be about the answers' subject.
            message = "this credential is an observer's: it may listen to events, and ask nothing"
            raise PermissionDeniedError(message, reason="publish")
        stream = self.asked.add(responder, subject)
        try:
            await self.publish(subject, data, reply_subject(self.tenant, responder, self.user, stream.token))
        except BaseException:
            stream.close()
            raise
        return stream

    async def request(
        self,
        responder: str,
        subject: str,
        data: bytes,
        timeout: float,
        heed: Heed | None,
        after_cut_s: float,
    ) -> bytes:
        """One answer. Raises UnreachableError (nobody listens: at once), DeadlineError, ConnectionError (also so long
        after the return of a connection that was lost meanwhile), and what ``heed`` tells meanwhile."""
        stream = await self.open(responder, subject, data)
        stream.after_cut_s = after_cut_s
        unheed = None if heed is None else heed(stream.fail)
        late = DeadlineError(f"no answer from {responder} within {timeout:.1f} s")
        timer = self.loop.call_later(timeout, self._late, stream, late)
        try:
            return await stream.next()
        finally:
            if unheed is not None:
                unheed()
            timer.cancel()
            stream.close()

    def _late(self, stream: AnswerStream, error: SandmeshError) -> None:
        # A loop that was blocked finds its timers due before it has read what came meanwhile: one more turn each
        # for the socket, the parser and the subscription.
        self.loop.call_later(0.05, stream.fail, error)

    async def close(self) -> None:
        self._closing = True
        self.home.leave()
        if not self._nc.is_closed:
            with contextlib.suppress(asyncio.TimeoutError, OSError, nats.errors.Error):
                # What cannot be sent any more has nobody to read it.
                await asyncio.wait_for(self._nc.close(), 2)
        self._end(ConnectionError("the connection to the mesh is closed", reason="closed"))

    def _end(self, error: SandmeshError) -> None:
        self.absence.end()
        if self.closed_error is None:
            self.closed_error = error
        self.asked.fail(self.closed_error)
        for handler in list(self._end_handlers):
            handler()

    def _server_gone(self) -> None:
        if self.absence.error is not None:
            self.asked.fail(self.absence.error)
        for handler in list(self._end_handlers):
            handler()

    async def _on_message(self, message: Msg) -> None:
        parts = message.subject.split(".", 5)
        stream = self.asked.streams.get(parts[5])
        # The server lets a sandbox answer under its own name only; whose question it was is checked here.
        if stream is None or stream.responder != parts[3]:
            return
        headers = message.headers
        if headers and headers.get("Status") == "503" and not message.data:
            stream.fail(UnreachableError(f"{stream.responder} is not there: nobody listens on {stream.subject}"))
        else:
            stream.push(message.data)

    async def _on_error(self, error: Exception) -> None:
        self._last_error = error
        log.debug("nats: %s", error)
        # What the server says; a certificate may have expired, too.
        said = str(error) if isinstance(error, nats.errors.Error) else ""
        violation = _VIOLATION.search(said)
        subscription = _SUBSCRIPTION.search(said)
        if violation is not None:
            denied = PermissionDeniedError(f"this credential may not publish to {violation[1]}", reason="publish")
            self.asked.fail(denied, violation[1])
        elif TOO_MANY_SUBSCRIPTIONS in said:
            self._subscribed.refuse_one(TOO_MANY_SUBSCRIPTIONS)
        elif subscription is not None:
            if not self._subscribed.refuse(subscription[1]):
                self._refuse(PermissionDeniedError(f"the server refused the credential: {error}", reason="subscribe"))
        elif _REFUSAL.search(said):
            self._deny(PermissionDeniedError(f"the server refused the credential: {error}", reason="credential"))
        elif self._connecting and isinstance(error, OSError) and not isinstance(error, asyncio.TimeoutError):
            # Nobody listens there, which is told when each was tried, and not at the end of the time.
            self._refusals += 1
            if self._refusals >= len(self.settings.urls):
                message = f"no NATS server answers at {self.settings.servers}: {error}"
                self._refuse(ConnectionError(message))

    def _deny(self, error: SandmeshError) -> None:
        if self._connecting:
            self._refuse(error)
        elif not self.connected:
            self._denied = error
            self.asked.fail(error)

    def _refuse(self, error: SandmeshError) -> None:
        if not self._refused.done():
            self._refused.set_result(error)

    async def _on_disconnected(self) -> None:
        if not self._closing and not self._connecting:
            self.asked.cut()
            self._subscribed.cut()
            self.absence.begin()

    async def _on_reconnected(self) -> None:
        self._denied = None
        self.absence.end()
        # Answers that were on their way are lost, so each asker decides whether to ask again.
        again = ConnectionError("the connection was lost and is back; the answer may be lost")
        self.asked.returned(again)
        for handler in list(self._reconnect_handlers):
            handler()

    async def _on_closed(self) -> None:
        if self._refused.done():
            self._end(self._refused.result())
        elif not self._closing:
            self._end(ConnectionError(f"the connection to the mesh closed: {self._last_error}", reason="closed"))

    def _sign(self, nonce: str) -> bytes:
        """Of each connection what is asked first: the JWT is of the same credentials."""
        self._credentials = self.settings.latest_credentials()
        return self._credentials.sign(nonce)

    async def _connect(self, name: str, timeout: float) -> None:
        options: dict[str, Any] = {}
        ca = self.settings.ca
        if ca is not None or any(url.startswith("tls://") for url in self.settings.urls):
            options["tls"] = ssl.create_default_context(cadata=ca)
        await self._nc.connect(
            servers=list(self.settings.urls),
            name=name,
            signature_cb=self._sign,
            user_jwt_cb=lambda: bytearray(self._credentials.jwt.encode()),
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
            closed_cb=self._on_closed,
            max_reconnect_attempts=-1,
            # Spread, so that many trainers that lost the same server do not come back in the same moment.
            reconnect_time_wait=random.uniform(0.5, 2),  # type: ignore[arg-type]
            connect_timeout=max(1, round(min(timeout, 5))),
            ping_interval=PING_INTERVAL_S,
            max_outstanding_pings=2,
            **options,
        )
        if self._may_ask:
            wildcard = reply_wildcard(self.tenant, self.user)
            await self._nc.subscribe(
                f"{wildcard[:-1]}{self.asked.name}.>",
                cb=self._on_message,
                # Credit bounds what is in flight; a message that is dropped here would only be asked for again.
                pending_msgs_limit=0,
                pending_bytes_limit=0,
            )
        await self._nc.flush()
        if self._refused.done():
            raise self._refused.result()
        self._connecting = False


async def connect_link(settings: Settings, name: str, timeout: float) -> Link:
    """Raises PermissionDeniedError, ConnectionError."""
    link = Link(settings)
    task = asyncio.ensure_future(link._connect(name, timeout))
    try:
        watched: set[asyncio.Future[Any]] = {task, link._refused}
        await asyncio.wait(watched, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if link._refused.done():
            raise link._refused.result()
        if not task.done():
            raise ConnectionError(
                f"no NATS server answers at {settings.servers} within {timeout:.0f} s"
            ) from link._last_error
        task.result()
        return link
    except BaseException as error:
        await _abandon(link, task)
        if isinstance(error, nats.errors.Error | OSError):
            raise ConnectionError(f"{settings.servers}: {error}") from error
        raise


async def _abandon(link: Link, task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=1)
    if task.done() and not task.cancelled():
        task.exception()  # looked at, so that asyncio does not complain
    try:
        await asyncio.wait_for(link.close(), 2)
    except (asyncio.TimeoutError, nats.errors.Error, OSError, AttributeError):
        log.debug("nats: closing an unfinished connection failed", exc_info=True)
