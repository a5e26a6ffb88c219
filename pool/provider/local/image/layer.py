"""One layer in overlay form, so that above the layers below it shows what applying them all to one folder gives (OCI
image-spec, layer.md): whiteouts first, wherever they stand; then each entry as a tar's, the last of a path's counts."""

import os
import shutil
import stat

from attributes import Attributes, dress, of_entry, of_file
from below import OPAQUE
from faults import BadImage, blaming

MAX_LAYER_BYTES = 64 * 1024**3
MAX_LINKS = 40  # the kernel's
WHITEOUT, META = ".wh.", ".wh..wh."
HIDE_ALL = META + ".opq"
NEW_FOLDER_MODE = 0o755


def join(folder, name):
    return f"{folder}/{name}" if folder else name


def within(path):
    """`path` and all folders that it lies in, but for the root."""
    parts = path.split("/") if path else []
    return ["/".join(parts[: i + 1]) for i in range(len(parts))]


def lstat(path):
    try:
        return os.lstat(path or ".")
    except (FileNotFoundError, NotADirectoryError):
        return None


def is_folder(path):
    info = lstat(path)
    return info is not None and stat.S_ISDIR(info.st_mode)


class Layer:
    """Unpacks into the working directory, which nobody else writes. All paths are relative to it and go through no
    symbolic link: those of entries are resolved here, and lead nowhere but into the layer."""

    def __init__(self, below):
        self.below = below
        # Whether it is the same on whatever layers: it asked nothing of them.
        self.alone = True
        self.bytes = 0
        self.named = {}  # folders that have an entry: its attributes
        self.implied = set()  # folders that have none
        self.hidden, self.opaque = set(), set()  # by whiteouts
        self.replaced = set()  # by what is no folder: nothing of below is seen there any more, whatever comes
        self.copied, self.linked = set(), set()  # files of below, made again here; those that entries link to
        self.followed = set()  # links of below
        self.resolved = {}  # folders' names, whose folders are there

    def add(self, tar, m):
        parts = [p for p in m.name.split("/") if p not in ("", ".")]
        if ".." in parts:
            raise BadImage(f"entry {m.name!r} leads out of the layer")
        if not parts:
            if m.isdir():
                return  # a sandbox's root folder is its own
            raise BadImage(f"entry {m.name!r} is the root, and no folder")
        *folders, name = parts
        if name.startswith(META) and name != HIDE_ALL or any(p.startswith(META) for p in folders):
            return  # aufs' own files
        folder = self.resolve(m.name, folders, name.startswith(WHITEOUT))
        if name == HIDE_ALL:
            self.opaque.add(folder)
        elif name.startswith(WHITEOUT):
            if name[4:] in ("", ".", ".."):
                raise BadImage(f"whiteout {m.name!r} leads out of the layer")
            self.hidden.add(join(folder, name[4:]))
        else:
            self.need(folder)
            self.resolved["/".join(folders)] = folder
            self.make(tar, m, join(folder, name))

    def resolve(self, name, parts, is_whiteout=False):
        """The folder that `parts` of the entry `name` lead to, as if the layers below were one folder with this one. For
        a whiteout what this layer has there, and is no folder, is nothing: it speaks of what is below."""
        known = self.resolved.get("/".join(parts))
        if known is not None:
            return known
        real, todo, links = [], parts[::-1], 0
        while todo:
            part = todo.pop()
            if part in ("", "."):
                continue
            if part == "..":
                real = real[:-1]
                continue
            path = "/".join([*real, part])
            place, info, is_own = self.look(path)
            if is_whiteout and is_own and not stat.S_ISDIR(info.st_mode):
                info = None
            if info is not None and stat.S_ISLNK(info.st_mode):
                links += 1
                if links > MAX_LINKS:
                    raise BadImage(f"entry {name!r} goes through too many symbolic links")
                target = os.readlink(place)
                real = [] if target.startswith("/") else real
                todo += target.split("/")[::-1]
                if not is_own:
                    self.followed.add(path)
                continue
            # A file of below may give way to a folder, but not one that a link names.
            if info is not None and not stat.S_ISDIR(info.st_mode) and (is_own or links):
                raise BadImage(f"entry {name!r} lies in {path!r}, which is no folder")
            real.append(part)
        return "/".join(real)

    def look(self, path):
        """(where it is, its lstat or None, whether it is this layer's)."""
        info = lstat(path)
        if info is not None:
            return path, info, True
        return *(self.under(path) or (path, None)), False

    def under(self, path):
        """What the layers below show at `path`, as `Below.find` says it."""
        self.alone = False
        return None if self.is_covered(path) else self.below.find(path)

    def is_covered(self, path):
        above = within(path)
        if "" in self.opaque or any(p in self.opaque for p in above[:-1]):
            return True
        return any(p in self.hidden or p in self.replaced for p in above)

    def need(self, folder):
        """Makes what is missing of `folder`."""
        for path in within(folder):
            if not is_folder(path):
                self.will_make(path)
                os.mkdir(path, 0o700)
                self.implied.add(path)

    def will_make(self, path):
        if path in self.followed:
            self.resolved.clear()

    def make(self, tar, m, path):
        attributes = of_entry(m)
        if m.isdir():
            self.make_folder(path, attributes)
            return
        if not (m.isreg() or m.issym() or m.islnk() or m.isdev()):
            raise BadImage(f"entry {m.name!r} is of an unknown type, {m.type!r}")
        target = self.link_target(m) if m.islnk() else None
        if target == path:
            return
        self.remove(path)
        self.will_make(path)
        self.replaced.add(path)
        if target is not None:
            os.link(target, path, follow_symlinks=False)
            return
        if m.issym():
            os.symlink(m.linkname, path)
        elif m.isreg():
            self.write(tar, m, path)
        elif m.isfifo():
            os.mkfifo(path, 0o600)
        else:
            self.hidden.add(path)  # a device node: the sandbox has its own /dev, and could open no other
            return
        dress(path, attributes)

    def make_folder(self, path, attributes):
        if not is_folder(path):
            self.remove(path)
            self.will_make(path)
            os.mkdir(path, 0o700)
        self.implied.discard(path)
        self.named[path] = attributes

    def remove(self, path):
        """What this layer has there, and all that is known of it."""
        info = lstat(path)
        if info is None:
            return
        self.resolved.clear()
        self.copied.discard(path)
        if not stat.S_ISDIR(info.st_mode):
            os.unlink(path)
            return
        shutil.rmtree(path)
        gone = path + "/"
        for paths in (self.implied, self.hidden, self.opaque, self.replaced, self.copied):
            paths -= {p for p in paths if p == path or p.startswith(gone)}
        self.named = {p: a for p, a in self.named.items() if p != path and not p.startswith(gone)}

    def link_target(self, m):
        """The path of what the hard link `m` links to. Of the layers below it is made here again, by all its names."""
        what = f"entry {m.name!r} is a hard link to {m.linkname!r}"
        parts = [p for p in m.linkname.split("/") if p not in ("", ".")]
        if ".." in parts:
            raise BadImage(f"{what}, which leads out of the layer")
        target = join(self.resolve(m.name, parts[:-1]), parts[-1]) if parts else ""
        place, info, is_own = self.look(target) if target else (".", os.lstat("."), True)
        if info is None:
            raise BadImage(f"{what}, which is neither an earlier entry of its layer nor in a lower one")
        if stat.S_ISDIR(info.st_mode):
            raise BadImage(f"{what}, which is a folder")
        if not is_own:
            self.copy(place, info, target)
            self.linked.add(target)
            for twin in self.below.twins(target):
                if not self.is_covered(twin) and lstat(twin) is None:
                    self.need(os.path.dirname(twin))
                    os.link(target, twin, follow_symlinks=False)
                    self.copied.add(twin)
        return target

    def copy(self, place, info, path):
        self.need(os.path.dirname(path))
        self.will_make(path)
        if stat.S_ISLNK(info.st_mode):
            os.symlink(os.readlink(place), path)
        elif stat.S_ISREG(info.st_mode):
            with open(place, "rb") as source, open(path, "xb") as out:
                self.count(info.st_size)
                shutil.copyfileobj(source, out, 1024 * 1024)
        else:
            os.mkfifo(path, 0o600)
        dress(path, of_file(place, info))
        self.copied.add(path)

    def count(self, size):
        self.bytes += size
        if self.bytes > MAX_LAYER_BYTES:
            raise BadImage(f"it is larger than {MAX_LAYER_BYTES} bytes")

    def write(self, tar, m, path):
        regions = m.sparse if m.issparse() else [(0, m.size)]
        self.count(sum(size for _, size in regions))
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(fd, "wb") as out:
            # Not by extractfile, which reads holes as zeros: what is there of a file stands together.
            tar.fileobj.seek(m.offset_data)
            for offset, size in regions:
                out.seek(offset)
                copy_bytes(tar.fileobj, out, size)
            out.truncate(m.size)

    def finish(self):
        for path in filter(self.is_covered, self.copied):
            if path in self.linked:
                raise BadImage(f"it has a hard link to {path!r}, which a whiteout of its own takes away")
            os.unlink(path)
        for path in sorted(self.hidden):
            with blaming(f"a whiteout of {path!r}"):
                self.hide(path)
        # Where a folder came after what is no folder, as well.
        self.opaque |= {path for path in self.replaced if is_folder(path)}
        for path in sorted(self.opaque):
            with blaming(f"an opaque whiteout in {path!r}"):
                self.hide_all(path)
        for path in sorted({*self.implied, *self.named}, key=lambda p: -p.count("/")):
            with blaming(f"the folder {path!r}"):
                self.dress_folder(path)

    def hide(self, path):
        folder = os.path.dirname(path)
        if folder in self.opaque or self.is_covered(folder):
            return
        if is_folder(path):
            self.opaque.add(path)
        elif lstat(path) is None:
            # Only where there is something: in a folder that no layer below has, overlayfs lists whiteouts as entries.
            self.alone = False
            if self.below.find(path) is not None:
                self.need(folder)
                os.mknod(path, stat.S_IFCHR, 0)

    def hide_all(self, path):
        if self.is_there(path):
            self.need(path)
            os.setxattr(path or ".", OPAQUE, b"y")

    def is_there(self, folder):
        """Whether it is a folder, here or below."""
        if not folder:
            return True
        _, info, _ = self.look(folder)
        return info is not None and stat.S_ISDIR(info.st_mode)

    def dress_folder(self, path):
        attributes = self.named.get(path)
        if attributes is None:
            found = self.under(path)
            if found is not None and stat.S_ISDIR(found[1].st_mode):
                attributes = of_file(*found)
            else:
                attributes = Attributes(0, 0, NEW_FOLDER_MODE, os.lstat(path).st_mtime_ns, {})
        dress(path, attributes)


def copy_bytes(source, out, size):
    while size > 0:
        data = source.read(min(size, 1024 * 1024))
        if not data:
            raise EOFError("unexpected end of a file's data")
        out.write(data)
        size -= len(data)
