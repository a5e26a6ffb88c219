"""What the layers below hold: unpacked ones, looked through as overlayfs looks through them."""

import os
import stat

IS_ROOT = os.getuid() == 0
OPAQUE = "trusted.overlay.opaque" if IS_ROOT else "user.overlay.opaque"


def is_whiteout(info):
    return stat.S_ISCHR(info.st_mode) and info.st_rdev == 0


def is_opaque(folder):
    try:
        return os.getxattr(folder, OPAQUE) == b"y"
    except OSError:
        return False


class Below:
    """`layers`: their folders, topmost first. Nobody changes them any more."""

    def __init__(self, layers):
        self.roots = []
        self.linked = {}  # of a root that was looked through: its files of several names, by inode
        for path in layers:
            # By descriptor: a path of the image's may be as long as one may be at all.
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            self.roots.append(f"/proc/self/fd/{fd}")
            if is_opaque(self.roots[-1]):
                break

    def find(self, path):
        """(where it is, its lstat) of what `path`, which goes through no symbolic link, shows; None for nothing."""
        folders, found = self.roots, None
        for part in path.split("/"):
            folders, found = self.step(folders, part)
            if found is None:
                return None
        return found

    @staticmethod
    def step(folders, part):
        merged, found = [], None
        for folder in folders:
            place = f"{folder}/{part}"
            try:
                info = os.lstat(place)
            except FileNotFoundError:
                continue
            if is_whiteout(info):
                break
            if stat.S_ISDIR(info.st_mode):
                merged.append(place)
            elif merged:
                break
            found = found or (place, info)
            if not merged or is_opaque(place):
                break
        return merged, found

    def twins(self, path):
        """The other names of the file at `path` that are shown: hard links, which only its own layer has."""
        place, info = self.find(path)
        if info.st_nlink == 1:
            return
        root = place[: -len(path) - 1]
        if root not in self.linked:
            self.linked[root] = linked_below(root)
        for known in self.linked[root].get(info.st_ino, ()):
            if known != path and (self.find(known) or ("",))[0] == f"{root}/{known}":
                yield known


def linked_below(root):
    """Once for all links to its files: there may be thousands of either."""
    names_of = {}
    for folder, folders, names in os.walk(root):
        # A link to what is a folder, as an absolute one may be on this machine by chance, stands among the folders.
        for name in (*folders, *names):
            place = f"{folder}/{name}"
            info = os.lstat(place)
            if info.st_nlink > 1 and not stat.S_ISDIR(info.st_mode):
                names_of.setdefault(info.st_ino, []).append(place[len(root) + 1 :])
    return names_of
