"""The sandbox's root file system: overlays of the image's folders, on a disk of its own where that is limited."""

import errno
import os

import kernel as k
from refused import MACHINES, Refused

OWN = "/.sandmesh"
OLD = OWN + "/old"
TOOLS = ("/usr/sbin", "/usr/bin", "/sbin", "/bin")


def overlay(plan, lowers, target, upper, work):
    # Names relative to the sandbox's folder: mount's option page is 4 KiB, and a path may hold ':' or ','.
    options = f"lowerdir={lowers},upperdir={upper},workdir={work}"
    if plan["userns"]:
        options += ",userxattr"
    k.mount(plan["mark"], target, "overlay", k.MS_NODEV, options)


def run_tool(name, *arguments):
    """A program of the machine's, before the root is left. Raises OSError with what it said."""
    path = next((p for p in (f"{folder}/{name}" for folder in TOOLS) if os.access(p, os.X_OK)), name)
    said = [(os.POSIX_SPAWN_OPEN, 2, "said", os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)]
    _, status = os.waitpid(os.posix_spawn(path, (name, *arguments), {}, file_actions=said), 0)
    if status != 0:
        with open("said", encoding="utf-8", errors="replace") as f:
            raise OSError(0, f"{name}: {f.read().strip() or status}")


def make_disk(size):
    """A file system in a sparse file, mounted where only the sandbox's own mount namespace sees it: the kernel frees the
    loop device with the namespace. Without a journal, since nothing of it outlives the sandbox."""
    with open("disk.img", "xb") as f:
        os.truncate(f.fileno(), size)
    options = "lazy_itable_init=1,nodiscard"
    run_tool("mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-i", "8192", "-E", options, "disk.img")
    os.mkdir("disk")
    run_tool("mount", "-n", "-t", "ext4", "-o", "loop,noatime,nodev", "disk.img", "disk")


def make_root(plan, outside):
    os.chdir(plan["folder"])
    base = ""
    if plan["disk_bytes"] is not None:
        make_disk(plan["disk_bytes"])
        base = "disk/"
    upper, work = base + "upper", base + "work"
    os.makedirs("lower", exist_ok=True)
    lowers = shown(plan)
    for i, lower in enumerate(lowers):
        os.symlink(lower if plan["image_identity"] is None else outside.here(lower), f"lower/{i}")
    for d in (upper, work, "root"):
        os.makedirs(d, mode=0o755, exist_ok=True)
    os.chmod(upper, 0o755)
    if plan["fresh"] and not plan["split"]:
        for d, mode in (("tmp", 0o1777), ("run", 0o755)):
            os.mkdir(f"{upper}/{d}")
            os.chmod(f"{upper}/{d}", mode)
            os.setxattr(f"{upper}/{d}", "trusted.overlay.opaque", b"y")
    if plan["split"]:
        make_split_root(plan)
    else:
        make_overlay(plan, len(lowers), upper, work)
    own = "root" + OWN
    if os.path.islink(own) or (os.path.lexists(own) and not os.path.isdir(own)):
        raise Refused("image", "spec.image", f"it has {OWN}, which is not a folder")
    os.makedirs(own, exist_ok=True)
    k.mount(plan["mark"], own, "tmpfs", k.MS_NOSUID | k.MS_NODEV, "mode=755,size=64k")
    os.mkdir("root" + OLD)
    os.chdir("root")
    k.pivot_root(".", OLD.lstrip("/"))
    os.chdir("/")


def shown(plan):
    """The image's folders down to one whose root hides all below it: the kernel asks that of no layer's root."""
    opaque = "user.overlay.opaque" if plan["userns"] else "trusted.overlay.opaque"
    lowers = []
    for lower in plan["lowers"]:
        lowers.append(lower)
        try:
            if len(plan["lowers"]) > 1 and os.getxattr(lower, opaque) == b"y":
                break
        except OSError as e:
            if e.errno not in (errno.ENODATA, errno.ENOTSUP):
                raise
    return lowers


def make_overlay(plan, count, upper, work):
    """Of a lower folder that it cannot take the kernel says no more than EINVAL or the like, as of an upper one. Whose
    fault it is, an overlay of an empty folder tells."""
    try:
        overlay(plan, ":".join(f"lower/{i}" for i in range(count)), "root", upper, work)
    except OSError as e:
        if e.errno in MACHINES:
            raise
        os.mkdir("empty")
        overlay(plan, "empty", "root", upper, work)
        what = f"it cannot be a root file system, since no overlay takes it ({os.strerror(e.errno)})"
        cause = "it ignores case, or is itself an overlay on an overlay"
        raise Refused("image", "spec.image", f"{what}: {cause}; copy it to a plain folder") from None


def make_split_root(plan):
    """One overlay for each top-level folder: a user namespace may not clone the machine's `/` as a whole. What
    cannot be read there is an empty folder here."""
    k.mount("upper", "root", None, k.MS_BIND)
    base = plan["lowers"][0]
    skip = {"proc", "sys", "dev", "tmp", "run", "mnt", "media", "lost+found"}
    for name in os.listdir(base):
        source, target = os.path.join(base, name), f"root/{name}"
        if os.path.islink(source):
            os.symlink(os.readlink(source), target)
        elif os.path.isdir(source) and name not in skip and not name.startswith("."):
            os.mkdir(target)
            os.makedirs(f"split/{name}/upper")
            os.makedirs(f"split/{name}/work")
            try:
                overlay(plan, f"lower/0/{name}", target, f"split/{name}/upper", f"split/{name}/work")
            except OSError:
                pass
    for d, mode in (("tmp", 0o1777), ("run", 0o755)):
        os.mkdir(f"root/{d}")
        os.chmod(f"root/{d}", mode)
