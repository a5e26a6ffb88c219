"""Encoding: MessagePack maps; what comes in may also be JSON (first byte ``{``)."""

from __future__ import annotations

import json
from typing import Any

import msgpack

from ..errors import InvalidRequestError, from_wire
from .schema import check


def encode(message: dict[str, Any]) -> bytes:
    """Raises InvalidRequestError with field "body" where it holds what has no form on the wire."""
    try:
        packed: bytes = msgpack.packb(message, use_bin_type=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRequestError(f"the body cannot be encoded: {error}", field="body") from error
    return packed


def decode(body: bytes) -> dict[str, Any]:
    """To a plain map; raises InvalidRequestError with field "body" on anything else."""
    if not body:
        return {}
    try:
        if body[0] == 0x7B:
            value = json.loads(body)
        else:
            # unpackb bounds what a header may claim by what is there.
            value = msgpack.unpackb(body, raw=False, strict_map_key=True)
    except (ValueError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise InvalidRequestError(f"the body is neither MessagePack nor JSON: {error}", field="body") from error
    if not isinstance(value, dict):
        raise InvalidRequestError("the body must be a map", field="body")
    return value


def throw_if_error(value: dict[str, Any]) -> None:
    error = value.get("error")
    if isinstance(error, dict):
        raise from_wire(error)


def parse_answer(message: str, body: bytes) -> dict[str, Any]:
    """Decodes one answer and checks it; raises the error that it carries."""
    value = decode(body)
    throw_if_error(value)
    return check(message, value)


_FRAMES = {
    "chunk": "frame.chunk",
    "started": "frame.started",
    "end": "frame.end",
    "file_end": "frame.file_end",
}


def parse_frame(body: bytes) -> dict[str, Any]:
    """One frame of an answer of several; raises the error that it carries, InvalidRequestError where it is none."""
    value = decode(body)
    throw_if_error(value)
    kind = value.get("type")
    message = _FRAMES.get(kind) if isinstance(kind, str) else None
    if message is None:
        raise InvalidRequestError("type: is no frame's", field="type")
    return check(message, value)
