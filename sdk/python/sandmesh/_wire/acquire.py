"""How one sandbox is asked for: under one id until it is there, and given back where nobody wants it any more."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from ..errors import (
    AcquireTimeoutError,
    ConnectionError,
    DeadlineError,
    LeaseLostError,
    NotFoundError,
    PoolUnavailableError,
    SandmeshError,
)
from .caller import Caller
from .ids import new_uuid7
from .renewal import Renewer

# Beside the acquire's own time limit, which the pool itself answers at: only a lost answer is waited for longer.
_SLACK_S = 1.0
# Seldom, since ten thousand may wait in the queue; a reconnect asks again at once.
_AGAIN_S = 10.0
# A pool that restarts is back within this.
_POOL_ABSENT_S = 15.0
_GIVE_BACK_S = 60.0
# Grants that came too late to be confirmed, after which it is given up.
_TRIES = 3


class _LateError(Exception):
    """The grant was taken back before it was confirmed, as when the event loop stood still meanwhile."""


# Nobody answers.
_SILENCE = (DeadlineError, ConnectionError, PoolUnavailableError)


async def acquire(caller: Caller, renewer: Renewer, request: dict[str, Any], chosen_id: bool) -> dict[str, Any]:
    """A confirmed grant, which is still open in ``renewer``, for whoever takes it to hold. Raises what the pool
    answers, AcquireTimeoutError, PoolUnavailableError, ConnectionError; whatever it raises, nothing stays acquired."""
    give_up_at = time.monotonic() + request["timeout_ms"] / 1000 + _SLACK_S
    for attempt in range(1, _TRIES + 1):
        asked = request if attempt == 1 else {**request, "id": new_uuid7()}
        renewer.open(asked["id"])
        try:
            left = max(0.001, give_up_at - time.monotonic())
            grant = await caller.pool("acquire", asked, timeout=left, again_after=_AGAIN_S, absent=_POOL_ABSENT_S)
            await _confirm(caller, grant, give_up_at)
            return grant
        except _LateError as late:
            _take_back(caller, renewer, asked["id"])
            if chosen_id or attempt == _TRIES or time.monotonic() > give_up_at:
                raise late.__cause__ or late from None
        except asyncio.CancelledError:
            _take_back(caller, renewer, asked["id"])
            raise
        except _SILENCE as error:
            # Whether the pool has heard of it is not known: it shall give it back in any case. It is not waited for,
            # and takes back by itself what nobody confirms.
            renewer.settled(asked["id"])
            _take_back(caller, renewer, asked["id"])
            if isinstance(error, DeadlineError):
                message = f"no sandbox within {request['timeout_ms'] / 1000:g} s, and no word of the pool"
                raise AcquireTimeoutError(message) from error
            raise
        except SandmeshError as error:
            if error.sandbox is None:
                renewer.settled(asked["id"])
            else:  # there was one, which has failed and is being removed
                _take_back(caller, renewer, asked["id"])
            raise
    raise AssertionError("each try returned or raised")


async def _confirm(caller: Caller, grant: dict[str, Any], give_up_at: float) -> None:
    request = {"sandbox": grant["sandbox"], "generation": grant["generation"]}
    try:
        # Also of a grant that came at the last moment.
        left = max(_SLACK_S, give_up_at - time.monotonic())
        timeout = min(left, max(5.0, grant["confirm_ms"] / 1000))
        await caller.pool("confirm", request, timeout=timeout, again_after=1.0)
    except (NotFoundError, LeaseLostError) as error:
        raise _LateError from error


def _take_back(caller: Caller, renewer: Renewer, lease: str) -> None:
    """Not waited for here: what is open yet when the connection closes, or the process ends, is released there."""

    async def release() -> None:
        await caller.pool("release", {"lease": lease}, timeout=_GIVE_BACK_S, absent=_GIVE_BACK_S)
        renewer.settled(lease)

    if caller.link.closed_error is None:
        caller.behind(release())
