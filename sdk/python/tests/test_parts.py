"""Uploads in numbered parts, to a receiver as strict as the daemon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sandmesh._wire.parts import Part, parts_of, send_parts
from sandmesh._wire.schema import limit
from sandmesh.errors import InvalidRequestError


async def numbered(count: int) -> AsyncIterator[Part]:
    for i in range(count):
        yield 10 * i, bytes([i]) * 10, i == count - 1


async def test_a_part_that_came_before_the_one_in_front_of_it_goes_again() -> None:
    got = bytearray()
    late = False

    async def send(offset: int, data: bytes, _last: bool) -> None:
        nonlocal late
        # The second part is asked again beneath, and comes only when those behind it have been refused.
        if offset == 10 and not late:
            late = True
            await asyncio.sleep(0.01)
        if offset > len(got):
            raise InvalidRequestError("offset: a gap", field="offset")
        got.extend(data[len(got) - offset :])

    assert await send_parts(numbered(6), send) == 60
    assert bytes(got) == b"".join(bytes([i]) * 10 for i in range(6))


async def test_a_receiver_that_has_lost_what_it_had_is_told() -> None:
    async def send(offset: int, _data: bytes, _last: bool) -> None:
        if offset > 0:
            raise InvalidRequestError("offset: a gap", field="offset")

    with pytest.raises(InvalidRequestError):
        await send_parts(numbered(6), send)


async def test_any_cutting_of_the_source_arrives_as_the_same_bytes_in_full_parts_one_of_them_last() -> None:
    full = limit("max_chunk_bytes")
    pattern = bytes(i * 31 >> 3 & 255 for i in range(4_001))
    for length in (0, 1, full - 1, full, full + 1, 2 * full, 3 * full + 17):
        whole = (pattern * (length // len(pattern) + 1))[:length]
        for piece in (60_000, full, full + 1, 5 * full):
            source = [whole[at : at + piece] for at in range(0, length, piece)]
            parts = [part async for part in parts_of(source, "content")]
            assert b"".join(data for _offset, data, _last in parts) == whole
            assert [offset for offset, _data, _last in parts] == [i * full for i in range(len(parts))]
            assert [last for _offset, _data, last in parts] == [False] * (len(parts) - 1) + [True]
            assert len(parts) == max(1, -(-length // full))
