"""What belongs to a connection, and so to one process."""

from __future__ import annotations

from typing import NoReturn


class Handle:
    """Neither pickled nor copied: it would be of no use elsewhere, and its connection's key is nobody else's. Results,
    outcomes and errors are."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} belongs to its connection, and is neither pickled nor copied: pass the id, "
            "connect where it is to be used, and take mesh.sandbox(id) there"
        )
