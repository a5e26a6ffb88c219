"""Connections through ports of real sandboxes: how one side ends, the other is told, and nothing stays open."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from typing import Any

import pytest
from conftest import Backend, until_async

AT_ONCE = 8

# One side of these connections: a client where it is given a port, else a server, which tells its own.
PEER = f"""
import socket, struct, sys, threading
does, size, port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
data = (b"0123456789" * (size // 10 + 1))[:size]
heard = []
def to_end(c):
    parts = []
    while part := c.recv(65536):
        parts.append(part)
    heard.append(b"".join(parts))
    return heard[-1]
def half(c):
    c.sendall(data)
    c.shutdown(socket.SHUT_WR)
    to_end(c)
def full(c):
    c.sendall(data)
    heard.append(data)
def answer(c):
    c.sendall(to_end(c))
def listen(c):
    to_end(c)
def reset(c):
    heard.append(data if c.recv(1) == b"x" else b"")
    c.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
def cut(c):
    c.sendall(b"x")
    try:
        heard.append(b"an end" + c.recv(1))
    except ConnectionResetError:
        heard.append(data)
def connect():
    with socket.create_connection(("127.0.0.1", port)) as c:
        globals()[does](c)
def accept():
    with s.accept()[0] as c:
        globals()[does](c)
if not port:
    s = socket.create_server(("127.0.0.1", 0), backlog=64)
    print(s.getsockname()[1], flush=True)
threads = [threading.Thread(target=connect if port else accept) for _ in range({AT_ONCE})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sum(each == data for each in heard), "of", len(heard))
"""


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def peer(does: str, size: int, port: int) -> list[str]:
    return ["-c", PEER, does, str(size), str(port)]


async def here(does: str, size: int, port: int = 0) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(sys.executable, *peer(does, size, port), stdout=PIPE)


async def forwarded(box: Any, server: str, client: str, size: int) -> list[str]:
    async with box.stream(["python3", *peer(server, size, 0)]) as serving:
        chunks = aiter(serving)
        async with await box.forward(int((await anext(chunks)).text)) as forward:
            before = descriptors()
            asking = await here(client, size, forward.port)
            said, _ = await asking.communicate()
            rest = "".join([chunk.text async for chunk in chunks])
            await nothing_open(box, 0, before)
    return [rest, said.decode()]


async def exposed(box: Any, server: str, client: str, size: int) -> list[str]:
    serving = await here(server, size)
    assert serving.stdout is not None
    async with await box.expose(int(await serving.stdout.readline())) as port:
        before = descriptors()
        asking = await box.exec(["python3", *peer(client, size, port.port)])
        rest = (await serving.stdout.read()).decode()
        await serving.wait()
        # The server's pipe is at its end, and closed.
        await nothing_open(box, 1, before)
    return [rest, str(asking.stdout)]


async def nothing_open(box: Any, listening: int, before: int) -> None:
    await until_async("no descriptor more than before", lambda: descriptors() <= before)
    running = [command for command in await box.commands() if command.running]
    while len(running) > listening:
        await asyncio.sleep(0.02)
        running = [command for command in await box.commands() if command.running]
    assert len(running) == listening


@pytest.mark.parametrize("way", [forwarded, exposed])
@pytest.mark.parametrize(("first", "second"), [("half", "answer"), ("full", "listen"), ("reset", "cut")])
async def test_one_side_ends_first_and_the_other_is_told(local: Backend, way: Any, first: str, second: str) -> None:
    async with local.connect() as mesh, await mesh.acquire("host") as box:
        for size in (0, 5, 300_000, 3_000_000):
            for server, client in ((first, second), (second, first)):
                said = await way(box, server, client, size)
                assert said == [f"{AT_ONCE} of {AT_ONCE}\n"] * 2, (server, client, size)
