"""Who the daemon runs as: the image's user or the spec's, and what is kept of root's rights."""

import os

import kernel as k
from refused import Refused


class NoSuchUser(Refused):
    def __init__(self, message):
        super().__init__("user", "spec.user", message)


def table(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return [line.rstrip("\n").split(":") for line in f if line.count(":") >= 3]
    except OSError:
        return []


def find_user(wish):
    """(uid, gid, groups, home) of `name|uid[:group|gid]` by the image's own passwd and group."""
    name, _, group = (wish or "0").partition(":")
    groups = table("/etc/group")
    row = next((r for r in table("/etc/passwd") if len(r) >= 6 and (r[0] == name or r[2] == name)), None)
    if row is None and not name.isdigit():
        raise NoSuchUser(f"the image's /etc/passwd has no user {name!r}")
    uid, gid, home = (int(row[2]), int(row[3]), row[5]) if row else (int(name), 0, "/")
    if group:
        found = next((g[2] for g in groups if g[0] == group), group)
        if not found.isdigit():
            raise NoSuchUser(f"the image's /etc/group has no group {group!r}")
        return uid, int(found), [int(found)], home
    login = row[0] if row else None
    return uid, gid, [gid] + [int(g[2]) for g in groups if len(g) > 3 and login in g[3].split(",")], home


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
