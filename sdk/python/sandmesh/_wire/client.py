"""The package ``nats``, where its ways are not ours. With link.py the only importer of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.subscription import Subscription
from nats.protocol.parser import PERMISSIONS_ERR

TOO_MANY_SUBSCRIPTIONS = "maximum subscriptions exceeded"
"""What the server says, which names none."""


class PlainServerError(OSError):
    """It has no TLS, which was asked for."""


class _Pong(asyncio.Future[Any]):
    def __init__(self, answered: Callable[[], None]) -> None:
        super().__init__()
        self._answered = answered

    def set_result(self, result: Any, /) -> None:
        # In the turn in which it is read: what stands behind it in the same packet comes later.
        self._answered()
        super().set_result(result)


class NatsClient(Client):
    def _connect_command(self) -> bytes:
        # The first word to a server, also at each return to it, and behind the TLS handshake where there is one. The
        # package goes by what the server offers: asked for TLS, it says everything in the clear to one that has none.
        if "tls" in self.options and not self._server_info.get("tls_required"):
            raise PlainServerError("the server speaks no TLS")
        return super()._connect_command()

    async def _process_err(self, err_msg: str) -> None:
        # The package closes the connection, which the server does not.
        if TOO_MANY_SUBSCRIPTIONS in err_msg:
            await self._error_cb(nats.errors.Error(f"nats: {TOO_MANY_SUBSCRIPTIONS}"))
        elif self.is_connected and PERMISSIONS_ERR not in err_msg:
            # The server ends the connection after it, as that of a credential that has expired. The package does so for
            # good; at the next one the server may take us, and the file have another credential.
            error = nats.errors.Error(f"nats: {err_msg}")
            await self._error_cb(error)
            await self._process_op_err(error)
        else:
            await super()._process_err(err_msg)

    def listen(
        self, subject: str, take: Callable[[Msg], Awaitable[None]], answered: Callable[[], None]
    ) -> Subscription:
        """As ``subscribe``, in front of all that is sent from now on, with a ping behind it (the package's own pings
        are sent in front of what waits): ``answered`` is called when the server has answered that."""
        self._sid += 1
        subscription = Subscription(self, self._sid, subject, cb=take, pending_msgs_limit=0, pending_bytes_limit=0)
        subscription._start(self._error_cb)  # type: ignore[no-untyped-call]
        self._subs[self._sid] = subscription
        if self.is_connected:
            self._pongs.append(_Pong(answered))
            self._put(f"SUB {subject} {self._sid}\r\nPING\r\n")
        else:
            answered()  # it is sent when the connection is back, with all others
        return subscription

    def end(self, subscription: Subscription) -> None:
        """As its ``unsubscribe``, in front of all that is sent from now on: one in its place is not one too many."""
        if subscription._closed or self.is_closed:
            return
        subscription._closed = True
        subscription._stop_processing()
        self._remove_sub(subscription._id)
        # Also where the connection is away: what waits to be sent then may begin with it.
        self._put(f"UNSUB {subscription._id}\r\n")

    def _put(self, command: str) -> None:
        data = command.encode()
        self._pending.append(data)
        self._pending_data_size += len(data)
        if self.is_connected and self._flush_queue is not None and self._flush_queue.empty():
            self._flush_queue.put_nowait(asyncio.get_running_loop().create_future())
