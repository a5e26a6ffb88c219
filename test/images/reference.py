"""What a sequence of layers comes to, by the plainest means: whiteouts first, then GNU tar, an entry at a time, in one folder.

  reference.py make CASES FOLDER    of each case (a list of layers, each a list of entries) FOLDER/N/L.tar and FOLDER/N/root;
                                    prints JSON, for each case why it cannot be, or null
  reference.py list ROOT            prints JSON, for each path below what is there

An entry: {name, type, content, linkname, mode, uid, gid, mtime (a decimal), xattrs}. Links must be relative and lead
nowhere out. Without root, owners and bits that only root may give are left out."""

import hashlib
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile

IS_ROOT = os.getuid() == 0
TYPES = {
    "file": tarfile.REGTYPE,
    "directory": tarfile.DIRTYPE,
    "symlink": tarfile.SYMTYPE,
    "link": tarfile.LNKTYPE,
    "fifo": tarfile.FIFOTYPE,
    "device": tarfile.CHRTYPE,
}
TAR = ["tar", "-x", "-P", "-p", "--numeric-owner", "--xattrs", "--xattrs-include=*"]
# What a sandbox brings itself, and what times are no entry's.
OWN = {".sandmesh", "dev", "proc", "sys", "etc", "tmp"}
LATEST_NS = 1_700_000_000 * 10**9


class Impossible(Exception):
    pass


def header(e):
    m = tarfile.TarInfo(e["name"])
    m.type = TYPES[e.get("type", "file")]
    m.mode, m.uid, m.gid = e.get("mode", 0o755 if m.isdir() else 0o644), e.get("uid", 0), e.get("gid", 0)
    m.linkname = e.get("linkname", "")
    m.size = len(e.get("content", "")) if m.isreg() else 0
    m.devmajor, m.devminor = (1, 3) if m.ischr() else (0, 0)
    m.pax_headers = {"mtime": e.get("mtime", "1000000000"), **{f"SCHILY.xattr.{k}": v for k, v in e.get("xattrs", {}).items()}}
    return m


def tar_of(entries):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for e in entries:
            tar.addfile(header(e), io.BytesIO(e.get("content", "").encode()))
    return out.getvalue()


def own_mode(e):
    return header(e).mode & 0o1777


def extract(root, entries):
    wanted = [e if IS_ROOT else {**e, "mode": own_mode(e) | (0o200 if e.get("xattrs") else 0)} for e in entries]
    flags = [] if IS_ROOT else ["--no-same-owner"]
    done = subprocess.run([*TAR, *flags, "-C", root], input=tar_of(wanted), capture_output=True)
    if done.returncode != 0:
        raise Impossible(done.stderr.decode())
    for e in entries:
        # tar sets attributes after the mode, which keeps them from who is not root where it forbids writing.
        if not IS_ROOT and e.get("xattrs"):
            os.chmod(os.path.join(root, e["name"]), own_mode(e))


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def folders(root):
    found = {}
    for folder, names, _ in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                found[path] = os.lstat(path)
    return found


class Step:
    """One layer upon `root`."""

    def __init__(self, root):
        self.root, self.before = root, folders(root)
        self.own, self.named = set(), {}

    def place(self, name):
        folder, base = os.path.split(os.path.join(self.root, name))
        return os.path.join(os.path.realpath(folder), base)

    def white_out(self, e):
        folder, base = os.path.split(self.place(e["name"]))
        if base == ".wh..wh..opq":
            for name in os.listdir(folder) if os.path.isdir(folder) else ():
                self.forget(os.path.join(folder, name))
        else:
            self.forget(os.path.join(folder, base[4:]))

    def make_parents(self, name):
        path = self.root
        for part in name.split("/")[:-1]:
            path = os.path.join(path, part)
            if os.path.isdir(path):
                path = os.path.realpath(path)
                continue
            if os.path.islink(path):
                path = self.make_target(path)
                continue
            if path in self.own:
                raise Impossible("a parent is a file of the same layer")
            self.forget(path)
            os.mkdir(path, 0o755)
            os.chmod(path, 0o755)
            os.chown(path, os.getuid(), os.getgid())  # not the group of a folder with set-group-id

    def make_target(self, path):
        try:
            os.stat(path)
            raise Impossible("a parent is a link to a file")
        except FileNotFoundError:
            path = os.path.realpath(path)
            self.make_parents(os.path.relpath(os.path.join(path, "x"), self.root))
            return path
        except OSError as e:
            raise Impossible(str(e)) from None

    def forget(self, path):
        remove(path)
        for paths in (self.own, self.named, self.before):
            for known in [p for p in paths if p == path or p.startswith(path + "/")]:
                paths.discard(known) if paths is self.own else paths.pop(known)

    def add(self, e):
        self.make_parents(e["name"])
        path = self.place(e["name"])
        kind = e.get("type", "file")
        if kind == "link":
            target = self.place(e["linkname"])
            if not os.path.lexists(target) or (os.path.isdir(target) and not os.path.islink(target)):
                raise Impossible("a hard link to no file")
            if target == path:
                return
        if kind != "directory" or not os.path.isdir(path) or os.path.islink(path):
            self.forget(path)
        if kind == "device":
            return
        if kind == "directory" and os.path.lexists(path):
            # A folder's attributes are replaced, which of these tar does not do.
            for name in os.listxattr(path):
                os.removexattr(path, name)
        extract(self.root, [e])
        self.own.add(path)
        if kind == "directory":
            self.named[path] = e

    def finish(self):
        for path, e in sorted(self.named.items(), reverse=True):
            extract(self.root, [{**e, "name": os.path.relpath(path, self.root)}])
        for path, info in self.before.items():
            if path not in self.named:
                os.utime(path, ns=(info.st_mtime_ns, info.st_mtime_ns))


def is_whiteout(e):
    return os.path.basename(e["name"]).startswith(".wh.")


def apply(root, entries):
    step = Step(root)
    for e in filter(is_whiteout, entries):
        step.white_out(e)
    for e in entries:
        if not is_whiteout(e):
            step.add(e)
    step.finish()


def make(cases, folder):
    verdicts = []
    for n, layers in enumerate(cases):
        root = os.path.join(os.path.realpath(folder), str(n), "root")
        os.makedirs(root)
        verdict = None
        for i, entries in enumerate(layers):
            with open(os.path.join(folder, str(n), f"{i}.tar"), "wb") as f:
                f.write(tar_of(entries))
            try:
                if verdict is None:
                    apply(root, entries)
            except Impossible as e:
                verdict = str(e)
        verdicts.append(verdict)
    return verdicts


def content(path, info):
    if stat.S_ISLNK(info.st_mode):
        return os.readlink(path)
    if not stat.S_ISREG(info.st_mode):
        return ""
    with open(path, "rb") as f:
        return hashlib.sha256(f.read()).hexdigest()


def xattrs(path, info):
    if stat.S_ISLNK(info.st_mode):
        return {}
    names = [n for n in os.listxattr(path) if not n.startswith(("trusted.", "user.overlay."))]
    return {n: os.getxattr(path, n).hex() for n in sorted(names)}


def list_all(root):
    found, inodes = {}, {}
    for folder, dirs, names in os.walk(root):
        if folder == root:
            dirs[:] = [d for d in dirs if d not in OWN]
        for name in dirs + names:
            path = os.path.join(folder, name)
            info = os.lstat(path)
            known = os.path.relpath(path, root)
            kind = stat.filemode(info.st_mode)[0]
            mode = "" if kind == "l" else oct(stat.S_IMODE(info.st_mode))
            time = "new" if info.st_mtime_ns > LATEST_NS else info.st_mtime_ns
            owner = [info.st_uid, info.st_gid] if IS_ROOT else []
            found[known] = [kind, mode, owner, str(time), content(path, info), xattrs(path, info)]
            if kind != "d":
                inodes.setdefault((info.st_dev, info.st_ino), []).append(known)
    for names in inodes.values():
        for name in names:
            found[name].append(sorted(names))
    return dict(sorted(found.items()))


if __name__ == "__main__":
    if sys.argv[1] == "make":
        with open(sys.argv[2]) as f:
            print(json.dumps(make(json.load(f), sys.argv[3])))
    else:
        print(json.dumps(list_all(sys.argv[2])))
