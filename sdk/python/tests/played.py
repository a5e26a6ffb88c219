"""A sandbox that the test plays, over real connections: for what no well-behaved daemon does."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import nats
from conftest import Backend
from nats.aio.client import Client
from nats.aio.msg import Msg

import sandmesh
from sandmesh._wire import codec
from sandmesh._wire.credentials import parse_credentials

SANDBOX = "sb-played"


def end(request: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "type": "end",
        "id": request["id"],
        "incarnation": "x",
        "outcome": {"type": "exited", "code": 0},
        "totals": totals(0),
        "duration_ms": 1,
        **more,
    }


def chunk(request: dict[str, Any], offset: int, data: bytes) -> dict[str, Any]:
    return {"type": "chunk", "id": request["id"], "stream": "stdout", "offset": offset, "data": data}


def totals(written: int) -> dict[str, Any]:
    zero = {"total_bytes": 0, "dropped_bytes": 0}
    return {"stdout": {"total_bytes": written, "dropped_bytes": 0}, "stderr": zero}


Script = Callable[[str, dict[str, Any]], list[Any]]


class Played:
    """Answers each request as the script says, but pings and what is given up as any daemon; keeps what was asked."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.replies: list[str] = []
        """Where each of them is answered."""
        self.reply = ""
        self.script: Script = lambda verb, request: [end(request)]

    async def on_message(self, message: Msg) -> None:
        verb, request = message.subject.split(".")[-1], codec.decode(message.data)
        self.asked.append((verb, request))
        self.replies.append(message.reply)
        # Left unanswered, closing would wait for it.
        always = {"ping": {"sandbox": SANDBOX, "incarnation": "x", "generation": 1}, "abort_transfer": {"done": True}}
        for answer in [always[verb]] if verb in always else self.script(verb, request):
            body = answer if isinstance(answer, bytes) else codec.encode(answer)
            # To word of credit, which wants no answer, the command's goes on.
            self.reply = message.reply or self.reply
            await self.client.publish(self.reply, body)

    def verbs(self) -> list[str]:
        return [verb for verb, _request in self.asked]


@asynccontextmanager
async def play(backend: Backend) -> AsyncIterator[tuple[Played, sandmesh.Sandbox]]:
    credentials = parse_credentials(backend.order("sandbox_credentials", sandbox=SANDBOX)["credentials"])
    client = await nats.connect(
        backend.url,
        user_jwt_cb=lambda: bytearray(credentials.jwt.encode()),
        signature_cb=credentials.sign,
    )
    played = Played(client)
    await client.subscribe(f"sbx.v1.acme.{SANDBOX}.*", cb=played.on_message)
    await client.flush()
    try:
        async with backend.connect() as mesh:
            yield played, mesh.sandbox(SANDBOX)
    finally:
        await client.close()
