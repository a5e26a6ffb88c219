"""What a sandbox sends that is no answer, or another's, or leads out of a folder."""

from __future__ import annotations

import random
from typing import Any

import pytest
from conftest import Backend
from played import SANDBOX, end, play, totals

import sandmesh
from sandmesh._wire import codec, schema
from sandmesh._wire.ids import new_uuid7
from sandmesh._wire.unpack import unpack_new


async def test_a_sandbox_cannot_answer_for_another(backend: Backend) -> None:
    async with play(backend) as (played, box):
        link = box._box.caller.link
        stream = await link.open("sb-other", f"sbx.v1.acme.{SANDBOX}.x", b"\x80")
        await played.client.publish(f"rep.v1.acme.{SANDBOX}.ann.{stream.token}", b"\x80")
        await played.client.flush()
        await link._nc.flush()
        assert list(stream._items) == []
        stream.close()


async def test_garbage_from_a_sandbox_is_a_typed_error_and_nothing_hangs(backend: Backend) -> None:
    """Every frame damaged in every way that the seed finds: a result, or a SandmeshError; nothing else."""
    dice = random.Random(20)
    async with play(backend) as (played, box):
        good = codec.encode(end({"id": new_uuid7()}, stdout=b"some output", totals=totals(11)))

        def damage() -> bytes:
            body = bytearray(good)
            for _ in range(dice.randint(1, 6)):
                at = dice.randrange(len(body))
                kind = dice.random()
                if kind < 0.6:
                    body[at] = dice.randrange(256)
                elif kind < 0.8:
                    del body[at:]
                    body += b"\xc0"
                else:
                    body[at:at] = dice.randbytes(dice.randint(1, 9))
            return bytes(body)

        refused = 0
        for _ in range(400):
            body = damage()
            played.script = lambda _verb, _request, body=body: [body]
            try:
                await box.exec("x", timeout=5)
            except sandmesh.SandmeshError:
                refused += 1
            if box.lost is not None:
                box._box.lifeline.error = None
        assert refused > 200


def test_no_bytes_at_all_make_the_decoder_fail_in_another_way() -> None:
    dice = random.Random(7)
    messages = list(schema.contract()["messages"])
    for _ in range(30_000):
        body = dice.randbytes(dice.randint(0, 40))
        if dice.random() < 0.3:
            body = bytes([0x80 | dice.randint(1, 15)]) + body
        try:
            schema.check(dice.choice(messages), codec.decode(body))
        except sandmesh.InvalidRequestError as error:
            assert error.field
    for body in (
        b"\x91" * 100_000,
        b'{"a":' * 50_000,
        b"\x81\xa1a" * 50_000,
        b"\xdf\xff\xff\xff\xff",
        b"\x81\x91\x01\x01",
    ):
        with pytest.raises(sandmesh.InvalidRequestError):
            codec.decode(body)


def test_an_archive_cannot_leave_its_folder(tmp_path: Any) -> None:
    import io
    import os
    import tarfile

    def archive(*members: tuple[str, str | None]) -> io.BytesIO:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for name, link in members:
                info = tarfile.TarInfo(name)
                if link is not None:
                    info.type, info.linkname = tarfile.SYMTYPE, link
                    tar.addfile(info)
                else:
                    info.size = 3
                    tar.addfile(info, io.BytesIO(b"bad"))
        return out

    outside = tmp_path / "outside"
    outside.mkdir()
    for members in (
        [("../outside/x", None)],
        [("link", str(outside)), ("link/x", None)],
        [("a", ".."), ("a/outside/x", None)],
        [("link", "../outside"), ("link/y", "z")],
    ):
        target = tmp_path / "target"
        try:
            unpack_new(archive(*members), os.fsencode(target), 0o755, 0)
        except sandmesh.FileError:
            pass
        assert list(outside.iterdir()) == []
    with pytest.raises(sandmesh.FileError):
        unpack_new(io.BytesIO(b"no tar" * 1000), os.fsencode(tmp_path / "t2"), 0o755, 0)
