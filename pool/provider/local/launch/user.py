"""Who the daemon runs as: the image's user or the spec's, and what is kept of root's rights."""

import os
import stat

import kernel as k
from refused import Refused


class NoSuchUser(Refused):
    def __init__(self, message):
        super().__init__("user", "spec.user", message)


MAX_ID = 2**31 - 1  # as container engines; the kernel's highest is setresuid(2)'s "as it is", which would be root
MAX_TABLE_BYTES = 16 * 1024 * 1024


def open_at_once(path, flags):
    """Also a fifo, which nobody writes."""
    return os.open(path, flags | os.O_NONBLOCK)


def table(path, columns):
    """The rows of the image's passwd or group, filled up to that many columns. One that is no plain file is none."""
    try:
        with open(path, encoding="utf-8", errors="replace", opener=open_at_once) as f:
            text = f.read(MAX_TABLE_BYTES) if stat.S_ISREG(os.fstat(f.fileno()).st_mode) else ""
    except OSError:
        return []
    rows = [line.split(":") for line in text.split("\n") if ":" in line]
    return [row + [""] * (columns - len(row)) for row in rows]


def number(text):
    """None where it is no number, as of users and groups in any form."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def need_id(text, what):
    found = number(text)
    if found is None or found > MAX_ID:
        raise NoSuchUser(f"{what} {text!r} is no number from 0 to {MAX_ID}")
    return found


def find_user(wish):
    """(uid, gid, groups, home) of `name|uid[:group|gid]` by the image's own passwd and group."""
    name, _, group = (wish or "0").partition(":")
    name = name or "0"
    groups = table("/etc/group", 4)
    asked = number(name)
    rows = table("/etc/passwd", 7)
    row = next((r for r in rows if r[0] == name or asked is not None and number(r[2]) == asked), None)
    if row is None and not name.isdigit():
        raise NoSuchUser(f"the image's /etc/passwd has no user {name!r}")
    if row:
        uid = need_id(row[2], f"of user {row[0]!r} in the image's /etc/passwd the id")
        gid = need_id(row[3], f"of user {row[0]!r} in the image's /etc/passwd the group")
    else:
        uid, gid = need_id(name, "user"), 0
    home = row[5] if row and row[5].startswith("/") else "/"
    if group:
        found = next((g[2] for g in groups if g[0] == group), None)
        if found is None and not group.isdigit():
            raise NoSuchUser(f"the image's /etc/group has no group {group!r}")
        gid = need_id(group, "group") if found is None else need_id(found, f"in the image's /etc/group {group!r}")
        return uid, gid, [gid], home
    login = row[0] if row else None
    known = [number(g[2]) for g in groups if login in g[3].split(",")]
    return uid, gid, [gid] + [g for g in known if g is not None and g <= MAX_ID], home


def become(plan, groups):
    """Drops to what the sandbox may do for ever: capabilities, then the image's or the spec's user."""
    uid, gid, others, home = find_user(plan["user"])
    if groups is not None:
        hand_over_groups(groups[0], uid, gid)
    keep = set(k.KEPT_CAPABILITIES.values())
    if plan["network"] == "host":
        keep.discard(k.KEPT_CAPABILITIES["net_raw"])
    k.drop_capabilities(keep)
    if plan["userns"]:
        if (uid, gid) != (0, 0):
            only = "a mesh without root has one user alone, the one it runs as, who is root inside"
            way_out = 'ask for user "0" (-u 0), or run the mesh as root'
            raise NoSuchUser(f"it is to run as user {plan['user']!r}, but {only}: {way_out}")
    else:
        os.setgroups(others)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    k.set_capabilities(keep if uid == 0 else ())
    return home


def hand_over_groups(folder, uid, gid):
    """To a daemon that is not root: the kernel wants the right to write to where a process comes from, too. Limits stay
    root's."""
    if uid != 0:
        for path in (".", "cgroup.procs", "../cgroup.procs"):
            os.chown(path, uid, gid, dir_fd=folder)


def usable(home):
    """`home`, or /tmp where it may not be entered: without root on the machine, the image's /root is the machine's
    root's. A file in it is looked for, since access(2) grants what overlayfs then refuses."""
    try:
        os.lstat(os.path.join(home, ".profile"))
    except PermissionError:
        return "/tmp"
    except OSError:
        pass
    return home
