"""Whose fault a launch's failure is: what was asked for, or else the machine."""

import contextlib
import errno

# Whatever was asked for: these are never the image's fault, or the spec's.
MACHINES = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE}


class Refused(Exception):
    """What was asked for cannot be: `kind` as in launcher.ts, `field` of the spec."""

    def __init__(self, kind, field, message):
        super().__init__(message)
        self.kind, self.field = kind, field


@contextlib.contextmanager
def blaming(kind, field, what):
    """What the system refuses within is the fault of what was asked for."""
    try:
        yield
    except OSError as e:
        if e.errno in MACHINES:
            raise
        raise Refused(kind, field, f"{what} ({e.strerror})") from None
