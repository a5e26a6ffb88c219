"""A FUSE file system at argv[1] whose file `stuck` (64 KB long) answers no read, and may be run. It prints a line when it is
mounted; at its end all that waits fails."""
import ctypes, os, struct, sys

fuse = os.open("/dev/fuse", os.O_RDWR)
options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"stuck", sys.argv[1].encode(), b"fuse.stuck", 0, options) != 0:
    sys.exit(os.strerror(ctypes.get_errno()))
LOOKUP, GETATTR, OPEN, READ, INIT, OPENDIR, READDIR = 1, 3, 14, 15, 26, 27, 28
SILENT = {2, READ, 36, 42}  # FORGET, INTERRUPT and BATCH_FORGET have no answer; READ gets none here
SIZE = 65536


def attributes(node):
    mode, size = (0o40755, 0) if node == 1 else (0o100755, SIZE)
    return struct.pack("<QQQQQQIIIIIIIIII", node, size, 0, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def entry(number, name, kind):
    data = struct.pack("<QQII", number, number, len(name), kind) + name
    return data + bytes(-len(data) % 8)


def answer(code, node, body):
    """The errno and the answer's body."""
    if code == INIT:
        return 0, struct.pack("<IIIIHHIIHHIIHHIIIII", 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    if code == LOOKUP:
        if body.rstrip(b"\0") != b"stuck":
            return 2, b""
        return 0, struct.pack("<QQQQII", 2, 0, 60, 60, 0, 0) + attributes(2)
    if code == GETATTR:
        return 0, struct.pack("<QII", 60, 0, 0) + attributes(node)
    if code in (OPEN, OPENDIR):
        return 0, struct.pack("<QII", 1, 0, 0)
    if code == READDIR:
        offset = struct.unpack_from("<QQ", body)[1]
        return 0, b"" if offset else entry(2, b"stuck", 8)
    return (0, b"") if code in (18, 25, 29) else (38, b"")  # FLUSH and the RELEASEs; else ENOSYS


print("mounted", flush=True)
while True:
    request = os.read(fuse, 1 << 20)
    _, code, unique, node = struct.unpack_from("<IIQQ", request)
    if code in SILENT:
        continue
    error, body = answer(code, node, request[40:])
    os.write(fuse, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)
