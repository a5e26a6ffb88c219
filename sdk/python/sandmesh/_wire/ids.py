"""Identifiers: what may stand in a subject, and new UUIDv7 (RFC 9562)."""

from __future__ import annotations

import os
import re
import secrets
import socket
import threading
import time

from ..errors import InvalidRequestError

ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
UUID_V7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


# Room for each path that there is, as a rule, and for a few addresses.
_LONGEST = 1000


def cut(text: str, at_most: int = _LONGEST) -> str:
    """A text in an error's message: whoever gave it may have given megabytes."""
    return text if len(text) <= at_most else f"{text[: at_most - 3]}..."


def shown(value: object) -> str:
    """A user's value in an error's message; some cannot even be shown."""
    try:
        # Also what is made for the message takes time and memory.
        text = repr(value if not isinstance(value, str | bytes) else value[:60])
    except Exception:
        return f"a {type(value).__name__}"
    return cut(text, 60)


def is_id(value: str) -> bool:
    return ID.fullmatch(value) is not None


def is_uuid7(value: str) -> bool:
    return UUID_V7.fullmatch(value) is not None


def check_id(field: str, value: str) -> str:
    if not isinstance(value, str) or not is_id(value):
        raise InvalidRequestError(f"{field} {shown(value)} is not a valid id ([a-z0-9][a-z0-9-]{{0,62}})", field=field)
    return value


def check_uuid7(field: str, value: str) -> str:
    if not isinstance(value, str) or not is_uuid7(value):
        raise InvalidRequestError(
            f"{field} must be a lower-case UUIDv7, such as 01920c6a-7b1e-7c3d-8e4f-5a6b7c8d9e0f", field=field
        )
    return value


def uuid7_time_ms(value: str) -> int:
    return int(value[:8] + value[9:13], 16)


_lock = threading.Lock()
_last_ms = 0
_counter = 0


def new_uuid7() -> str:
    """Within one process ids only ever grow, also when the clock steps back (RFC 9562 §6.2, method 1)."""
    global _last_ms, _counter
    with _lock:
        now = time.time_ns() // 1_000_000
        if now > _last_ms:
            _last_ms, _counter = now, 0
        else:
            _counter += 1
            if _counter > 0xFFF:
                _last_ms, _counter = _last_ms + 1, 0
        ms, count = _last_ms, _counter
    tail = int.from_bytes(os.urandom(8), "big") & (1 << 62) - 1 | 1 << 63
    digits = f"{ms:012x}7{count:03x}{tail:016x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def random_name(length: int) -> str:
    """Letters and digits for names a person reads aloud (Crockford's base 32); 5 bits each."""
    return "".join(secrets.choice("0123456789abcdefghjkmnpqrstvwxyz") for _ in range(length))


def new_run_id() -> str:
    host = "".join(c if c.isascii() and c.isalnum() else "-" for c in socket.gethostname().lower())[:20]
    return check_id("run", f"py-{host}-{random_name(10)}")
