"""Whose fault it is that an image cannot be unpacked: its own, or the machine's."""

import contextlib
import errno

# Never an image's fault.
MACHINES = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EROFS}


class BadImage(Exception):
    pass


@contextlib.contextmanager
def blaming(what):
    """What the system refuses within is the fault of `what`. An OSError without a number is a decompressor's, of what it
    reads, and passes."""
    try:
        yield
    except OSError as e:
        if e.errno is None or e.errno in MACHINES:
            raise
        raise BadImage(f"{what} cannot be made: {e.strerror}") from None
    except OverflowError as e:
        raise BadImage(f"{what} cannot be made: {e}") from None
