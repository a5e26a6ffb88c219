"""What of the machine's is mounted inside. Each is opened before the root is left, and mounted by its descriptor: a path
would be walked anew from the sandbox's root, where an absolute link leads into the image, and whoever may change a folder
of it could lead it elsewhere after it was looked at."""

import os

from refused import Refused, blaming
from root import OLD


class Outside:
    def __init__(self):
        self.opened = {}

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
    for volume in plan["volumes"]:
        outside.open_same(volume["source"], volume["identity"], f"{volume['field']}.source")
    if plan["image_identity"] is not None:
        outside.open_same(plan["lowers"][0], plan["image_identity"], "spec.image")
    for path in (*plan["own"].values(), *plan["cgroup_views"], *nodes):
        outside.open(path)
    return outside
