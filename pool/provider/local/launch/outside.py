"""What of the machine's is mounted inside. Each is opened before the root is left, and mounted by its descriptor: a path
would be walked anew from the sandbox's root, where an absolute link leads into the image, and whoever may change a folder
of it could lead it elsewhere after it was looked at."""

import os
import re

from refused import Refused, blaming
from root import OLD


def mounts():
    """Of this namespace, by id: where each is and of which type (proc(5)). What is mounted on the machine from now on does
    not come here."""
    found = {}
    with open("/proc/self/mountinfo", "rb") as f:
        for line in f:
            place, _, rest = line.partition(b" - ")
            fields = place.split(b" ")
            point = re.sub(rb"\\([0-7]{3})", lambda m: bytes([int(m[1], 8)]), fields[4])
            found[int(fields[0])] = (os.fsdecode(point), rest.split(b" ")[0].decode())
    return found


def mount_of(fd):
    with open(f"/proc/self/fdinfo/{fd}") as f:
        return int(re.search(r"^mnt_id:\s*(\d+)$", f.read(), re.M)[1])


class Outside:
    def __init__(self):
        self.opened = {}
        self.below = {}

    def open(self, path):
        """In this mount namespace, since the kernel binds from no other."""
        self.opened[path] = os.open(path, os.O_PATH | os.O_CLOEXEC)

    def open_same(self, path, identity, field):
        """What was looked at (places.ts), and nothing that came into its place since."""
        with blaming("request", field, f"{path} was removed while the sandbox started"):
            self.open(path)
        info = os.fstat(self.opened[path])
        if identity != f"{info.st_dev}:{info.st_ino}":
            raise Refused("request", field, f"{path} was replaced while the sandbox started")

    def open_below(self, path, field, all_mounts, data_types):
        """What is mounted below a volume's source, as (path from there, descriptor), outer ones first. Data only, as told
        from what was opened: a path may lead to another meanwhile."""

        def need_data(fd):
            point, kind = all_mounts.get(mount_of(fd), (path, "something else"))
            if kind.split(".")[0] not in data_types:
                why = f"holds {point}, where {kind} is mounted, which is not known as a file system of data"
                raise Refused("request", field, f"{path} {why}")

        need_data(self.opened[path])
        top = os.readlink(self.here(path)).rstrip("/") + "/"
        self.below[path] = []
        for i, (point, _) in sorted(all_mounts.items(), key=lambda each: each[1][0]):
            if not point.startswith(top) or point == top:
                continue
            try:
                fd = os.open(point, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            # Another is mounted over it, or above.
            if mount_of(fd) != i:
                os.close(fd)
                continue
            need_data(fd)
            self.below[path].append((point[len(top) :], fd))

    def here(self, path):
        """A path to it before the root is left."""
        return f"/proc/self/fd/{self.opened[path]}"

    def source(self, path):
        """And after it."""
        return OLD + self.here(path)

    def is_at(self, target, path):
        return os.path.exists(target) and os.path.samestat(os.stat(target), os.fstat(self.opened[path]))


def open_all(plan, nodes):
    outside = Outside()
    all_mounts = mounts() if plan["volumes"] else {}
    for volume in plan["volumes"]:
        field = f"{volume['field']}.source"
        outside.open_same(volume["source"], volume["identity"], field)
        outside.open_below(volume["source"], field, all_mounts, plan["data_types"])
    if plan["image_identity"] is not None:
        outside.open_same(plan["lowers"][0], plan["image_identity"], "spec.image")
    for path in (*plan["own"].values(), *plan["cgroup_views"], *nodes):
        outside.open(path)
    return outside
