"""Images as files: an OCI layout (folder or tar) or a docker-archive tar. Two commands, for image.ts:

  archive.py describe PATH [REF]            → JSON {"config": …, "layers": [{"id", "name", "digest"?}]}
  archive.py unpack PATH NAME ID TARGET [BELOW…]
                                            unpacks one layer, in overlay form, into the new folder TARGET; BELOW are those
                                            that it lies on, topmost first → JSON {"alone"}: whether it asked nothing of them

Exit status 3 with {"error": …} on stdout: the file is at fault; 4: the machine's disk or memory is. Everything read is checked against its digest."""

import bz2
import errno
import gzip
import hashlib
import json
import lzma
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zlib

from below import Below
from faults import BadImage, blaming
from layer import Layer

MAX_JSON_BYTES = 16 * 1024 * 1024
MAX_LAYERS = 127  # what distributions' overlay mounts were tried with
MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]


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


def runs_here(platform):
    return platform.get("os", "linux") == "linux" and platform.get("architecture", MACHINE) == MACHINE


def oci_manifest(src, index, ref):
    def names(d):
        a = d.get("annotations") or {}
        return [a[n] for n in ("org.opencontainers.image.ref.name", "io.containerd.image.name") if n in a]

    chosen = one_of(index.get("manifests") or [], ref, names)
    for _ in range(4):
        value = read_json(src, blob(chosen["digest"]), chosen["digest"])
        if "manifests" not in value:
            return value
        fits = [m for m in value["manifests"] if runs_here(m.get("platform") or {})]
        if not fits:
            raise BadImage(f"it has no manifest for linux/{MACHINE}")
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


def describe_whole(path, ref):
    try:
        return describe(path, ref)
    except (KeyError, TypeError, AttributeError, RecursionError) as e:
        raise BadImage(f"its JSON is not that of an image ({type(e).__name__}: {e})") from None


class Hashing:
    """A file that is hashed as it is read."""

    def __init__(self, file):
        self.file, self.hash, self.size = file, hashlib.sha256(), 0

    def read(self, size=-1):
        data = self.file.read(size)
        self.size += len(data)
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
    # A frame of zstd's, or one for others that it skips.
    if head.startswith(b"\x28\xb5\x2f\xfd") or head[1:4] == b"\x2a\x4d\x18" and head[0] & 0xF0 == 0x50:
        return Zstd(file)
    return file


class Zstd:
    """What the program zstd makes of a file: Python has known it itself only since 3.14."""

    def __init__(self, file):
        if shutil.which("zstd") is None:
            raise BadImage("a layer is compressed with zstd: install zstd, or save the image with gzip")
        self.complaint = tempfile.TemporaryFile()
        pipes = {"stdin": copy_out(file), "stdout": subprocess.PIPE, "stderr": self.complaint}
        self.child = subprocess.Popen(["zstd", "-dcq"], **pipes)

    def read(self, size=-1):
        data = self.child.stdout.read(size)
        if not data and size != 0 and self.child.wait() != 0:
            self.complaint.seek(0)
            said = self.complaint.read(1000).decode("utf-8", "replace").strip()
            raise EOFError(said.rpartition(": ")[2] or f"zstd ended with {self.child.returncode}")
        return data


def copy_out(file):
    """A file with a descriptor of its own, as a program's input."""
    copy = tempfile.TemporaryFile()
    shutil.copyfileobj(file, copy)
    copy.seek(0)
    return copy


class Header(tarfile.TarInfo):
    """Of a header that is none in a tar's middle tarfile says that the tar ends there."""

    @classmethod
    def fromtarfile(cls, tar):
        try:
            return super().fromtarfile(tar)
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as e:
            raise tarfile.SubsequentHeaderError(str(e)) from None


def entries(content):
    """(the tar, each of its entries). Of no bytes at all there are none."""
    try:
        tar = tarfile.open(fileobj=content, mode="r|", errorlevel=2, tarinfo=Header)
    except tarfile.ReadError:
        if content.size == 0:
            return
        raise
    with tar:
        for member in tar:
            yield tar, member


def unpack(path, name, id, target, *below):
    """Whether what it made is the same on whatever layers."""
    with source(path).open(name) as packed:
        if name.startswith("blobs/sha256/"):
            hashing = Hashing(packed)
            if hashing.digest() != "sha256:" + name[13:]:
                raise BadImage(f"{name} does not have its digest")
            packed.seek(0)
        content = Hashing(plain(packed))
        os.mkdir(target, 0o755)
        layer = Layer(Below(below))
        os.chdir(target)
        try:
            for tar, member in entries(content):
                with blaming(f"entry {member.name!r}"):
                    layer.add(tar, member)
            layer.finish()
            found = content.digest()
        except BadImage as e:
            raise BadImage(f"layer {id}: {e}") from None
        except (tarfile.TarError, EOFError, lzma.LZMAError, zlib.error, ValueError) as e:
            raise BadImage(f"layer {id} cannot be read: {e}") from None
        except OSError as e:
            # gzip's and bz2's, of what they read.
            if e.errno is not None:
                raise
            raise BadImage(f"layer {id} cannot be read: {e}") from None
        if found != id:
            raise BadImage(f"layer {name} does not unpack to {id}")
        return {"alone": layer.alone}


def main(argv):
    try:
        if argv[1] == "describe":
            print(json.dumps(describe_whole(argv[2], argv[3] if len(argv) > 3 else None)))
        else:
            print(json.dumps(unpack(*argv[2:])))
    except BadImage as e:
        print(json.dumps({"error": str(e)}))
        sys.exit(3)
    except OSError as e:
        print(json.dumps({"error": e.strerror or str(e), "errno": errno.errorcode.get(e.errno or 0, "EIO")}))
        sys.exit(4)


if __name__ == "__main__":
    main(sys.argv)
