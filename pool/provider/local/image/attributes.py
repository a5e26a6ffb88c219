"""Owner, mode, times and extended attributes of what a layer makes: from its tar, or as a folder below has them."""

import errno
import os
import re
import stat
from typing import NamedTuple

from below import IS_ROOT
from faults import BadImage

MAX_ID = 2**32 - 2  # the one above is chown(2)'s "as it is"
XATTR = "SCHILY.xattr."  # GNU tar's, and every container engine's
TIME = re.compile(r"(-?)(\d+)(?:\.(\d*))?")


class Attributes(NamedTuple):
    uid: int
    gid: int
    mode: int
    mtime_ns: int
    xattrs: dict


def is_kept(xattr):
    """Never `overlay.*`: with a redirect in it, a layer could name any folder of the machine. What only root may set is
    left out where we are not; SELinux's labels and the like are the machine's."""
    if xattr.startswith("user."):
        return not xattr.startswith("user.overlay.")
    return IS_ROOT and xattr in ("security.capability", "system.posix_acl_access", "system.posix_acl_default")


def of_entry(m):
    if not (0 <= m.uid <= MAX_ID and 0 <= m.gid <= MAX_ID):
        raise BadImage(f"entry {m.name!r} is of owner {m.uid}:{m.gid}; 0 to {MAX_ID} there are")
    named = {k[len(XATTR) :]: v for k, v in m.pax_headers.items() if k.startswith(XATTR)}
    xattrs = {k: v.encode("utf-8", "surrogateescape") for k, v in named.items() if is_kept(k)}
    return Attributes(m.uid, m.gid, m.mode & 0o7777, mtime_ns(m), xattrs)


def mtime_ns(m):
    text = m.pax_headers.get("mtime")
    if text is None:
        return m.mtime * 10**9
    # tarfile makes a float of it, which has no nanoseconds.
    parts = TIME.fullmatch(text)
    if parts is None:
        raise BadImage(f"entry {m.name!r} has the time {text!r}, which is none")
    sign, seconds, fraction = parts.groups()
    ns = int(seconds) * 10**9 + int(f"{fraction or '':0<9.9}")
    return -ns if sign else ns


def of_file(path, info):
    names = () if stat.S_ISLNK(info.st_mode) else filter(is_kept, os.listxattr(path))
    xattrs = {name: os.getxattr(path, name) for name in names}
    return Attributes(info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode), info.st_mtime_ns, xattrs)


def dress(path, a):
    """Without root every file is of the one user that there is, and no program becomes its owner: such bits are left out."""
    is_link = os.path.islink(path)
    if IS_ROOT:
        os.lchown(path, a.uid, a.gid)
    if not is_link:
        # After the owner, whose change takes capabilities away; before the mode, which may forbid it.
        for name, value in a.xattrs.items():
            set_xattr(path, name, value)
        os.chmod(path, a.mode if IS_ROOT else a.mode & 0o1777)
    os.utime(path, ns=(a.mtime_ns, a.mtime_ns), follow_symlinks=False)


def set_xattr(path, name, value):
    try:
        os.setxattr(path, name, value)
    except OSError as e:
        # What the file system does not know, or special files do not have, container engines leave out, too.
        if e.errno == errno.ENOTSUP or (e.errno == errno.EPERM and name.startswith("user.")):
            return
        # ext4 says so of one that is too long for it, too.
        if e.errno == errno.ENOSPC and os.statvfs(path).f_bavail == 0:
            raise
        raise BadImage(f"{path!r} cannot have the attribute {name} of {len(value)} bytes: {e.strerror}") from None
