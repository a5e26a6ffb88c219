"""Volumes: folders of the machine's, shown read-only."""

import os

import kernel as k
from refused import Refused, blaming
from root import OLD, OWN

FLAGS = k.MS_NOSUID | k.MS_NODEV | k.MS_RDONLY


def own_target(volume):
    """By the image's links, or another volume's, it may be another than spec.ts has looked at."""
    real = os.path.realpath(volume["target"])
    if real == "/" or any(os.path.commonpath([real, path]) == path for path in ("/proc", "/sys", "/dev", OWN)):
        field = f"{volume['field']}.mount_path"
        raise Refused("request", field, f"{volume['target']} leads to {real}, which is the sandbox's own")


def mount_volume(volume, outside, userns):
    """Alone, and then what is mounted below it, each by its descriptor: so nothing comes along that was not looked at, as
    whatever was moved there since. Linux lets a user namespace take a folder with all that is mounted below it only; there
    no procfs leads anywhere, since the kernel asks for rights in the user namespace of who is to be looked at."""
    source, target = volume["source"], volume["target"]
    k.bind(outside.source(source), target, FLAGS, k.MS_REC if userns else 0)
    if userns:
        return
    for path, fd in outside.below[source]:
        with blaming("request", f"{volume['field']}.source", f"{source}/{path} was moved while the sandbox started"):
            point, inner = walk(target, path), f"{OLD}/proc/self/fd/{fd}"
            # On the mount that is bound, in this namespace of ours: a descriptor of the point leads beneath what is put there.
            k.restrict(inner, FLAGS)
            k.mount(inner, f"/proc/self/fd/{point}", None, k.MS_BIND)
            os.close(point)


def walk(folder, path):
    """A descriptor of what is there, by no link: whoever may change the folder could lead it elsewhere in the sandbox."""
    fd = os.open(folder, os.O_PATH)
    for name in path.split("/"):
        inner = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=fd)
        os.close(fd)
        fd = inner
    return fd


def mount_volumes(plan, outside):
    """By path, parents first, in whatever order they were asked for: one that comes later would cover what lies in it."""
    volumes = plan["volumes"]
    for volume in sorted(volumes, key=lambda v: os.path.realpath(v["target"])):
        target = volume["target"]
        own_target(volume)
        why = f"{target} cannot be mounted on: there is no such folder, and none can be made there"
        with blaming("request", f"{volume['field']}.mount_path", why):
            os.makedirs(target, exist_ok=True)
        mount_volume(volume, outside, plan["userns"])
    for volume in volumes:
        # Two paths that are one by the image's links, or by another volume's.
        if not outside.is_at(volume["target"], volume["source"]):
            field = f"{volume['field']}.mount_path"
            raise Refused("request", field, f"{volume['target']} is covered by another volume")
