"""Ports of real sandboxes, both ways."""

from __future__ import annotations

import asyncio

import pytest
from conftest import Backend

import sandmesh


async def test_ports_both_ways(local: Backend) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async with local.connect() as mesh, await mesh.acquire("host") as box:
        # A server in the sandbox, which has no network but its own.
        code = (
            "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)\n"
            "c, _ = s.accept(); f = c.makefile('rb'); c.sendall(f.read()[::-1]); c.close()"
        )
        async with box.stream(["python3", "-c", code]) as server:
            first = await anext(aiter(server))
            async with await box.forward(int(first.data)) as forward:
                reader, writer = await asyncio.open_connection(forward.host, forward.port)
                data = bytes(range(256)) * 4000
                writer.write(data)
                writer.write_eof()
                assert await reader.read() == data[::-1]
                writer.close()
        here = await asyncio.start_server(echo, "127.0.0.1", 0)
        local_port = here.sockets[0].getsockname()[1]
        async with await box.expose(local_port) as exposed:
            line = f"exec 3<>/dev/tcp/127.0.0.1/{exposed.port}; echo hello >&3; read -r answer <&3; echo $answer"
            results = await asyncio.gather(*(box.exec(["bash", "-c", line], timeout=20) for _ in range(5)))
            assert [result.stdout.text for result in results] == ["hello\n"] * 5
            with pytest.raises(sandmesh.ProviderError):
                await box.expose(1, port=exposed.port)
        here.close()
        refused = await box.exec(["bash", "-c", f": < /dev/tcp/127.0.0.1/{exposed.port}"])
        assert not refused.ok


def test_files_and_ports_without_await(local: Backend) -> None:
    with local.connect_sync() as mesh, mesh.acquire("host") as box:
        box.files.write("/tmp/t/a.py", "x = 1\n")
        box.files.chmod("/tmp/t/a.py", 0o751)
        box.files.chown("/tmp/t/a.py", uid=1234)
        info = box.files.stat("/tmp/t/a.py")
        assert (info.mode, info.uid) == (0o751, 1234)
        assert len(box.files.sha256("/tmp/t/a.py")) == 64
        assert box.files.glob("*.py", "/tmp/t") == ["a.py"]
        assert [match.line for match in box.files.search("x", "/tmp/t")] == [1]
        with box.forward(1) as forward, box.expose(1) as exposed:
            assert forward.port > 0 and exposed.port > 0
