"""Exchanges two entries of a folder, again and again, until stdin is closed: python3 swap.fixture.py FOLDER A B."""

import ctypes
import os
import select
import sys

AT_FDCWD, RENAME_EXCHANGE = -100, 2
libc = ctypes.CDLL(None, use_errno=True)
os.chdir(sys.argv[1])
one, other = (name.encode() for name in sys.argv[2:])
print("ready", flush=True)
while not select.select([0], [], [], 0)[0]:
    for _ in range(200):
        if libc.renameat2(AT_FDCWD, one, AT_FDCWD, other, RENAME_EXCHANGE) != 0:
            raise OSError(ctypes.get_errno(), "renameat2")
