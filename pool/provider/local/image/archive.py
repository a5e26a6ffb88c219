"""Images as files: an OCI layout (folder or tar) or a docker-archive tar. Two commands, for image.ts:

  archive.py describe PATH [REF]            → JSON {"config": …, "layers": [{"id", "name", "digest"?}]}
  archive.py unpack PATH NAME ID TARGET     unpacks one layer, in overlay form, into the new folder TARGET

Exit status 3 with {"error": …} on stdout: the file is at fault; 4: the machine's disk or memory is. Everything read is checked against its digest."""

import bz2
import errno
import gzip
import hashlib
import json
import lzma
import os
import shutil
import stat
import subprocess
import sys
import tarfile

MAX_JSON_BYTES = 16 * 1024 * 1024
MAX_LAYERS = 127  # what distributions' overlay mounts were tried with
MAX_LAYER_BYTES = 64 * 1024**3
MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
IS_ROOT = os.getuid() == 0
OPAQUE = "trusted.overlay.opaque" if IS_ROOT else "user.overlay.opaque"


# Never a layer's fault.
MACHINES = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EROFS}


class BadImage(Exception):
    pass


class Folder:
    def __init__(self, path):
        self.path = path

    def open(self, name):
        whole = os.path.normpath(os.path.join(self.path, name))
        if not whole.startswith(self.path + "/") or os.path.realpath(whole) != whole:
            raise BadImage(f"{name!r} leads out of the layout")
        try:
            return open(whole, "rb")
        except OSError as e:
            raise BadImage(f"{name}: {e.strerror}") from None


class Archive:
    def __init__(self, path):
        try:
            self.tar = tarfile.open(path)
            self.members = {m.name.removeprefix("./"): m for m in self.tar.getmembers()}
        except (tarfile.TarError, EOFError, OSError, ValueError) as e:
            # Of a file that is none, tarfile tells each way that it tried, in a line of its own.
            raise BadImage(f"not a readable tar: {str(e).splitlines()[-1].removeprefix('- method tar: ')}") from None

    def open(self, name):
        member = self.members.get(name)
        for _ in range(8):  # docker save links equal layers to one another
            if member is None or not (member.issym() or member.islnk()):
                break
            base = os.path.dirname(member.name) if member.issym() else ""
            member = self.members.get(os.path.normpath(os.path.join(base, member.linkname)))
        if member is None or not member.isfile():
            raise BadImage(f"it has no file {name!r}")
        return self.tar.extractfile(member)


def source(path):
    return Folder(os.path.realpath(path)) if os.path.isdir(path) else Archive(path)


def has(src, name):
    try:
        src.open(name).close()
        return True
    except BadImage:
        return False


def read_json(src, name, digest=None):
    with src.open(name) as f:
        data = f.read(MAX_JSON_BYTES + 1)
    if len(data) > MAX_JSON_BYTES:
        raise BadImage(f"{name} is larger than {MAX_JSON_BYTES} bytes")
    if digest is not None and "sha256:" + hashlib.sha256(data).hexdigest() != digest:
        raise BadImage(f"{name} does not have the digest {digest}")
    try:
        return json.loads(data)
    except ValueError:
        raise BadImage(f"{name} is not JSON") from None


def blob(digest):
    algorithm, _, value = digest.partition(":")
    if algorithm != "sha256" or len(value) != 64 or not all(c in "0123456789abcdef" for c in value):
        raise BadImage(f"digest {digest!r} is not a sha256 in lower-case hex")
    return f"blobs/sha256/{value}"


def one_of(all, ref, names):
    found = [f for f in all if ref in names(f)] if ref else all
    if len(found) != 1:
        known = ", ".join(n for f in all for n in names(f)) or "none with a name"
        which = f"no image {ref!r}" if ref and not found else f"{len(found)} images; choose one by PATH#NAME"
        raise BadImage(f"it has {which} ({known})")
    return found[0]


def oci_manifest(src, index, ref):
    def names(d):
        a = d.get("annotations") or {}
        return [a[n] for n in ("org.opencontainers.image.ref.name", "io.containerd.image.name") if n in a]

    chosen = one_of(index.get("manifests") or [], ref, names)
    for _ in range(4):
        value = read_json(src, blob(chosen["digest"]), chosen["digest"])
        if "manifests" not in value:
            return value
        fits = [m for m in value["manifests"] if (m.get("platform") or {}).get("architecture", MACHINE) == MACHINE]
        if not fits:
            raise BadImage(f"it has no manifest for {MACHINE}")
        chosen = fits[0]
    raise BadImage("its indexes are nested too deeply")


def describe(path, ref):
    src = source(path)
    if has(src, "index.json"):
        manifest = oci_manifest(src, read_json(src, "index.json"), ref)
        config = read_json(src, blob(manifest["config"]["digest"]), manifest["config"]["digest"])
        files = [(blob(l["digest"]), l["digest"]) for l in manifest["layers"]]
    elif has(src, "manifest.json"):
        entry = one_of(read_json(src, "manifest.json"), ref, lambda e: e.get("RepoTags") or [])
        config = read_json(src, entry["Config"])
        files = [(name, None) for name in entry["Layers"]]
    else:
        raise BadImage("it has neither index.json (OCI) nor manifest.json (docker-archive)")
    ids = (config.get("rootfs") or {}).get("diff_ids") or []
    if len(ids) != len(files):
        raise BadImage(f"its configuration names {len(ids)} layers, its manifest {len(files)}")
    if not 0 < len(files) <= MAX_LAYERS:
        raise BadImage(f"it has {len(files)} layers; 1 to {MAX_LAYERS} can be stacked")
    layers = []
    for id, (name, digest) in zip(ids, files, strict=True):
        blob(id)
        layers.append({"id": id, "name": name, **({"digest": digest} if digest else {})})
    return {"config": config.get("config") or {}, "layers": layers}


class Hashing:
    """A file that is hashed as it is read."""

    def __init__(self, file):
        self.file, self.hash = file, hashlib.sha256()

    def read(self, size=-1):
        data = self.file.read(size)
        self.hash.update(data)
        return data

    def digest(self):
        while self.read(1024 * 1024):
            pass
        return "sha256:" + self.hash.hexdigest()


def plain(file):
    """The layer's tar, whatever it is compressed with."""
    head = file.read(6)
    file.seek(0)
    if head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)
    if head.startswith(b"BZh"):
        return bz2.BZ2File(file)
    if head.startswith(b"\xfd7zXZ"):
        return lzma.LZMAFile(file)
    if head.startswith(b"\x28\xb5\x2f\xfd"):
        if shutil.which("zstd") is None:
            raise BadImage("a layer is compressed with zstd: install zstd, or save the image with gzip")
        return subprocess.Popen(["zstd", "-dcq"], stdin=copy_out(file), stdout=subprocess.PIPE).stdout
    return file


def copy_out(file):
    """A file with a descriptor of its own, as a program's input."""
    import tempfile

    copy = tempfile.TemporaryFile()
    shutil.copyfileobj(file, copy)
    copy.seek(0)
    return copy


class Layer:
    """Unpacks one layer below `root`, which nobody else writes. No entry's path may go through a symbolic link."""

    def __init__(self, root):
        self.root, self.folders, self.bytes = root, {root}, 0
        self.late = []

    def path(self, name):
        parts = [p for p in name.split("/") if p not in ("", ".")]
        if ".." in parts or "\0" in name:
            raise BadImage(f"entry {name!r} leads out of the layer")
        parent = self.root
        for part in parts[:-1]:
            parent = os.path.join(parent, part)
            if parent in self.folders:
                continue
            if os.path.islink(parent):
                raise BadImage(f"entry {name!r} goes through a symbolic link")
            if not os.path.isdir(parent):
                os.mkdir(parent, 0o755)
            self.folders.add(parent)
        return os.path.join(parent, parts[-1]) if parts else self.root

    def add(self, tar, m):
        path = self.path(m.name)
        name = os.path.basename(path)
        if name == ".wh..wh..opq":
            os.setxattr(os.path.dirname(path), OPAQUE, b"y")
        elif name.startswith(".wh..wh."):
            pass  # aufs' own files
        elif name.startswith(".wh."):
            target = os.path.join(os.path.dirname(path), name[4:])
            if name[4:] in ("", ".", ".."):
                raise BadImage(f"whiteout {m.name!r} leads out of the layer")
            if not os.path.lexists(target):
                os.mknod(target, stat.S_IFCHR, 0)
        else:
            self.make(tar, m, path)

    def make(self, tar, m, path):
        if os.path.lexists(path) and not (m.isdir() and os.path.isdir(path) and not os.path.islink(path)):
            if os.path.isdir(path) and not os.path.islink(path):
                raise BadImage(f"entry {m.name!r} replaces a folder of its own layer")
            os.unlink(path)
        if m.isdir():
            os.makedirs(path, exist_ok=True)
            self.late.append((path, m))
            return
        if m.issym():
            os.symlink(m.linkname, path)
        elif m.islnk():
            self.link(m, path)
            return
        elif m.isfile():
            self.write(tar, m, path)
        elif m.isfifo():
            os.mkfifo(path)
        else:
            return  # a device node: the sandbox has its own /dev, and could open no other
        self.dress(path, m)

    def link(self, m, path):
        """A layer stands by itself and is shared by images: a file of a lower one, to which the OCI image-spec knows no
        hard links (layer.md: such a linkname "is not recorded"), is none of its."""
        target = self.path(m.linkname)
        what = f"entry {m.name!r} is a hard link to {m.linkname!r}"
        if not os.path.lexists(target):
            none = "which is no earlier entry of the same layer; one to a lower layer's file cannot be made"
            raise BadImage(f"{what}, {none}")
        if os.path.isdir(target) and not os.path.islink(target):
            raise BadImage(f"{what}, which is a folder")
        os.link(target, path, follow_symlinks=False)

    def write(self, tar, m, path):
        self.bytes += m.size
        if self.bytes > MAX_LAYER_BYTES:
            raise BadImage(f"a layer is larger than {MAX_LAYER_BYTES} bytes")
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(fd, "wb") as out:
            shutil.copyfileobj(tar.extractfile(m), out, 1024 * 1024)

    def dress(self, path, m):
        if IS_ROOT:
            os.lchown(path, m.uid, m.gid)
        if m.issym():
            return
        os.chmod(path, m.mode & 0o7777 if IS_ROOT else m.mode & 0o1777)
        os.utime(path, (m.mtime, m.mtime))
        for key, value in m.pax_headers.items():
            name = key.removeprefix("SCHILY.xattr.")
            # Never `trusted.overlay.*`: with a redirect in it, a layer could name any folder of the machine.
            if name != key and (name.startswith("user.") and not name.startswith("user.overlay.") or IS_ROOT and name == "security.capability"):
                os.setxattr(path, name, value.encode("utf-8", "surrogateescape"))

    def finish(self):
        for path, m in reversed(self.late):
            self.dress(path, m)


def add(layer, tar, member):
    try:
        layer.add(tar, member)
    except OSError as e:
        # Without a number: gzip's, of what it reads.
        if e.errno is None or e.errno in MACHINES:
            raise
        raise BadImage(f"entry {member.name!r} cannot be made: {e.strerror}") from None


def unpack(path, name, id, target):
    with source(path).open(name) as packed:
        if name.startswith("blobs/sha256/"):
            hashing = Hashing(packed)
            if hashing.digest() != "sha256:" + name[13:]:
                raise BadImage(f"{name} does not have its digest")
            packed.seek(0)
        content = Hashing(plain(packed))
        os.mkdir(target, 0o755)
        layer = Layer(target)
        try:
            with tarfile.open(fileobj=content, mode="r|", errorlevel=2) as tar:
                for member in tar:
                    add(layer, tar, member)
        except BadImage as e:
            raise BadImage(f"layer {id}: {e}") from None
        except (tarfile.TarError, EOFError, gzip.BadGzipFile, lzma.LZMAError, ValueError) as e:
            raise BadImage(f"layer {id} cannot be read: {e}") from None
        layer.finish()
        if content.digest() != id:
            raise BadImage(f"layer {name} does not unpack to {id}")


def main(argv):
    try:
        if argv[1] == "describe":
            print(json.dumps(describe(argv[2], argv[3] if len(argv) > 3 else None)))
        else:
            unpack(*argv[2:])
    except BadImage as e:
        print(json.dumps({"error": str(e)}))
        sys.exit(3)
    except OSError as e:
        print(json.dumps({"error": e.strerror or str(e), "errno": errno.errorcode.get(e.errno or 0, "EIO")}))
        sys.exit(4)
    except (KeyError, TypeError, AttributeError) as e:
        print(json.dumps({"error": f"its JSON is not that of an image ({type(e).__name__}: {e})"}))
        sys.exit(3)


if __name__ == "__main__":
    main(sys.argv)
