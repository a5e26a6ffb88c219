"""Uploads in numbered parts, to a receiver as strict as the daemon."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sandmesh._wire.parts import Part, send_parts
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
