"""The kernel's calls that Python's library lacks (until 3.12), through ctypes. Each raises OSError with what it was about."""

import ctypes
import errno
import fcntl
import os
import signal
import socket
import struct

libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
CLONE_INTO_CGROUP = 0x200000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MNT_DETACH = 2

PR_SET_PDEATHSIG, PR_SET_NAME, PR_CAPBSET_READ, PR_CAPBSET_DROP = 1, 15, 23, 24
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
SIOCSIFFLAGS, IFF_UP = 0x8914, 1

# What root keeps: Docker's default set without MKNOD, since a device node of one's own would reach the machine's
# disks. No SYS_ADMIN, SYS_PTRACE, SYS_MODULE, DAC_READ_SEARCH (open_by_handle_at leaves the root), LINUX_IMMUTABLE.
KEPT_CAPABILITIES = {
    "chown": 0, "dac_override": 1, "fowner": 3, "fsetid": 4, "kill": 5, "setgid": 6, "setuid": 7, "setpcap": 8,
    "net_bind_service": 10, "net_raw": 13, "sys_chroot": 18, "audit_write": 29, "setfcap": 31,
}


def check(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags):
    check(libc.unshare(ctypes.c_int(flags)), "unshare")


def mount(source, target, kind=None, flags=0, options=None):
    arg = lambda s: None if s is None else os.fsencode(s)
    result = libc.mount(arg(source), arg(target), arg(kind), ctypes.c_ulong(flags), arg(options))
    check(result, f"mount {kind or 'bind'} {source} on {target}")


def set_flags_below(target, flags):
    """Sets these (NOSUID, NODEV, NOEXEC, RDONLY: mount_setattr(2) has the same numbers) on a mount and all below it; others
    stay. Nothing where the kernel is of before 5.12."""
    here, recursive = -100, 0x8000
    attributes = struct.pack("=4Q", flags, 0, 0, 0)
    path, size = os.fsencode(target), ctypes.c_size_t(len(attributes))
    result = libc.syscall(ctypes.c_long(442), here, path, ctypes.c_uint(recursive), attributes, size)
    if result < 0 and ctypes.get_errno() == errno.ENOSYS:
        return
    check(result, f"mount_setattr {target}")


def bind(source, target, flags, below=MS_REC):
    """`flags` beside MS_BIND need a second mount(2). Of what is mounted below the source, too, unless `below` is 0; before
    Linux 5.12 that keeps its own."""
    mount(source, target, None, MS_BIND | below)
    restrict(target, flags)
    if below:
        set_flags_below(target, flags)


def restrict(target, flags):
    """Sets these on one mount, beside its own: in a user namespace those are locked, and must be named again."""
    locked = os.statvfs(target).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY)
    mount(None, target, None, MS_BIND | MS_REMOUNT | flags | locked)


def unmount_detached(target):
    check(libc.umount2(os.fsencode(target), MNT_DETACH), f"unmount {target}")


def pivot_root(new, old):
    number = {"x86_64": 155, "aarch64": 41}[os.uname().machine]
    check(libc.syscall(ctypes.c_long(number), os.fsencode(new), os.fsencode(old)), "pivot_root")


def alone(folder):
    """A descriptor of that folder (given as one) as the root of a mount of its own, in no namespace: no `..` leads out of
    it. Linux 5.2; needs CAP_SYS_ADMIN."""
    clone, empty_path = 1, 0x1000
    flags = clone | os.O_CLOEXEC | empty_path
    return check(libc.syscall(ctypes.c_long(428), ctypes.c_int(folder), b"", ctypes.c_uint(flags)), "open_tree")


def fork_into(cgroup):
    """fork(2), with the child born in a version 2 cgroup. Moving it there later would wait for all cpus' grace
    periods, 8 to 16 ms. Without such a folder, or before Linux 5.7, the plain fork; the child then moves itself."""
    if cgroup is None:
        return os.fork()
    fd = os.open(cgroup, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    arguments = struct.pack("=11Q", CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, fd)
    pid = libc.syscall(ctypes.c_long(435), arguments, ctypes.c_size_t(len(arguments)))
    os.close(fd)
    if pid >= 0:
        return pid
    pid = os.fork()
    if pid == 0:
        with open(f"{cgroup}/cgroup.procs", "w") as f:
            f.write("0")
    return pid


def eventfd():
    """os.eventfd, which Python has since 3.10. A read of nothing does not wait."""
    return check(libc.eventfd(ctypes.c_uint(0), ctypes.c_int(os.O_NONBLOCK | os.O_CLOEXEC)), "eventfd")


def set_hostname(name):
    data = name.encode()
    check(libc.sethostname(data, ctypes.c_size_t(len(data))), "sethostname")


def prctl(option, arg=0, arg3=0):
    z = ctypes.c_ulong(0)
    return libc.prctl(ctypes.c_int(option), ctypes.c_ulong(arg), ctypes.c_ulong(arg3), z, z)


def set_process_name(name):
    buffer = ctypes.create_string_buffer(name.encode())
    libc.prctl(ctypes.c_int(PR_SET_NAME), buffer, 0, 0, 0)


def loopback_up():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", IFF_UP))


def drop_capabilities(keep):
    """Bounding set, then permitted, effective and inheritable. Must be called as the user that held them all."""
    number = 0
    while prctl(PR_CAPBSET_READ, number) >= 0:
        if number not in keep:
            check(prctl(PR_CAPBSET_DROP, number), f"drop capability {number}")
        number += 1
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)


def set_capabilities(keep):
    """For the running process; an exec computes its own from uid and bounding set."""
    low = sum(1 << n for n in keep)
    header = struct.pack("=Ii", 0x20080522, 0)
    data = struct.pack("=6I", low, low, 0, 0, 0, 0)
    check(libc.capset(header, data), "capset")
