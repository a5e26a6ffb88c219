"""Units: durations are seconds, sizes are bytes or text with a unit ("512MiB", "2g")."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import timedelta
from numbers import Integral, Real
from typing import Union

from ._wire.arguments import check_arguments
from ._wire.ids import shown
from .errors import InvalidRequestError

Seconds = Union[int, float, timedelta]  # noqa: UP007
Size = Union[int, str]  # noqa: UP007

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE | re.ASCII)
_FACTOR = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def milliseconds(value: Seconds, field: str) -> int:
    """Seconds to whole milliseconds, rounded up; raises InvalidRequestError naming ``field``."""
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    # Real: NumPy's numbers too.
    if isinstance(seconds, bool) or not isinstance(seconds, Real) or not (0 <= seconds <= 10**9):
        raise InvalidRequestError(f"{field}: {shown(value)} is no number of seconds", field=field)
    return math.ceil(float(seconds) * 1000)


def time_limit(value: Seconds, field: str) -> int:
    """As ``milliseconds``, above 0: a limit of 0 is "never" to some programs and "at once" to others."""
    limit_ms = milliseconds(value, field)
    if limit_ms == 0:
        raise InvalidRequestError(f"{field}: a time limit must be above 0; left out, it is the default", field=field)
    return limit_ms


def plain(value: object) -> object:
    """A mapping as a dict, which is what has a form on the wire; all else stays for the check to judge."""
    return dict(value) if isinstance(value, Mapping) else value


def size_bytes(value: Size, field: str) -> int:
    """To whole bytes, in powers of 1024; raises InvalidRequestError naming ``field``."""
    if isinstance(value, Integral) and not isinstance(value, bool) and value >= 0:
        return int(value)
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        size = math.inf if match is None else float(match[1]) * _FACTOR[match[2].lower()]
        if size < math.inf:
            return round(size)
    given = shown(value)
    raise InvalidRequestError(f'{field}: {given} is neither bytes nor text such as "512MiB" or "2g"', field=field)


def lease_milliseconds(lease: Seconds) -> int:
    """Raises InvalidRequestError where it is none that the pool takes: 1 s to 24 h."""
    lease_ms = milliseconds(lease, "lease")
    check_arguments("pool.renew.request", {"run": "r", "lease_ms": lease_ms})
    return lease_ms
