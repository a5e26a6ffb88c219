"""The sandbox's first process, from its birth in new namespaces to the daemon's exec.

Every path of the image is resolved after pivot_root, so that a symbolic link in an image leads nowhere but into the
sandbox. The plan is what launcher.ts writes (its type there says what each field is)."""

import json
import os
import resource
import signal
import stat

import kernel as k
import outside as o
from refused import Refused, blaming
from root import OLD, OWN, make_root
from user import become, usable
from volumes import mount_volumes

NODES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
MASKED = ("kcore", "keys", "timer_list", "acpi", "scsi", "sched_debug", "latency_stats")
READ_ONLY = ("sys", "sysrq-trigger", "irq", "bus", "fs")
HARMLESS = k.MS_NOSUID | k.MS_NODEV | k.MS_NOEXEC


def need_folder(path):
    """A folder of the image's that something is mounted on. No link: it may lead to what is mounted before or after, or out
    of the sandbox, by OLD."""
    if os.path.islink(path):
        raise Refused("image", "spec.image", f"its {path} is not a folder, but a link")
    with blaming("image", "spec.image", f"its {path} is not a folder"):
        os.makedirs(path, exist_ok=True)


def enter(plan):
    """Joins the cgroups and leaves the machine's namespaces. The pid namespace is new already."""
    if plan["nproc"]:
        # Counted for the sandbox's own user namespace (Linux 5.14), and not to be raised from inside.
        resource.setrlimit(resource.RLIMIT_NPROC, (plan["nproc"], plan["nproc"]))
    for tasks in plan["cgroup_tasks"]:
        with open(tasks, "w") as f:
            f.write("0")
    flags = k.CLONE_NEWNS | k.CLONE_NEWIPC | k.CLONE_NEWUTS
    if plan["network"] != "host":
        flags |= k.CLONE_NEWNET
    k.unshare(flags)
    k.mount(None, "/", None, k.MS_REC | k.MS_PRIVATE)
    k.set_hostname(plan["sandbox"])
    if plan["network"] != "host":
        k.loopback_up()


def mount_proc(plan):
    need_folder("/proc")
    k.mount("proc", "/proc", "proc", HARMLESS)
    for name in MASKED:
        path = f"/proc/{name}"
        if os.path.isdir(path):
            k.mount("tmpfs", path, "tmpfs", HARMLESS | k.MS_RDONLY, "size=0")
        elif os.path.exists(path):
            k.mount("/dev/null", path, None, k.MS_BIND)
    for name in READ_ONLY:
        if os.path.exists(f"/proc/{name}"):
            k.bind(f"/proc/{name}", f"/proc/{name}", HARMLESS | k.MS_RDONLY)


def mount_dev(plan, outside):
    need_folder("/dev")
    k.mount("dev", "/dev", "tmpfs", k.MS_NOSUID, "mode=755,size=64k")
    os.umask(0)
    for name, (major, minor) in NODES.items():
        if plan["userns"]:
            os.close(os.open(f"/dev/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
            k.mount(outside.source(f"/dev/{name}"), f"/dev/{name}", None, k.MS_BIND)
        else:
            os.mknod(f"/dev/{name}", 0o666 | stat.S_IFCHR, os.makedev(major, minor))
    os.umask(0o022)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink("/proc/self/fd" + target, f"/dev/{name}")
    os.symlink("pts/ptmx", "/dev/ptmx")
    for name in ("pts", "shm", "mqueue"):
        os.mkdir(f"/dev/{name}")
    group = "" if plan["userns"] else ",gid=5"
    k.mount("devpts", "/dev/pts", "devpts", k.MS_NOSUID | k.MS_NOEXEC, f"newinstance,ptmxmode=0666,mode=0620{group}")
    k.mount("shm", "/dev/shm", "tmpfs", k.MS_NOSUID | k.MS_NODEV, f"mode=1777,size={plan['shm_bytes']}")
    k.mount("mqueue", "/dev/mqueue", "mqueue", HARMLESS)


def mount_sys(plan, outside):
    need_folder("/sys")
    if plan["userns"] and plan["network"] == "host":
        return  # a sysfs of one's own needs a network namespace of one's own
    k.mount("sysfs", "/sys", "sysfs", HARMLESS | k.MS_RDONLY)
    if os.path.isdir("/sys/firmware"):
        k.mount("tmpfs", "/sys/firmware", "tmpfs", HARMLESS | k.MS_RDONLY, "size=0")
    if not plan["cgroup_views"] or not os.path.isdir("/sys/fs/cgroup"):
        return
    # Of the cgroups, a sandbox sees its own and cannot change it.
    if "/sys/fs/cgroup" not in plan["cgroup_views"].values():
        k.mount("cgroup", "/sys/fs/cgroup", "tmpfs", HARMLESS, "mode=755,size=64k")
    for source, target in plan["cgroup_views"].items():
        os.makedirs(target, exist_ok=True)
        k.bind(outside.source(source), target, HARMLESS | k.MS_RDONLY)


def mount_own(plan, outside):
    for name, source in plan["own"].items():
        os.mkdir(f"{OWN}/{name}")
        below = k.MS_REC if plan["userns"] else 0
        k.bind(outside.source(source), f"{OWN}/{name}", k.MS_NOSUID | k.MS_NODEV | k.MS_RDONLY, below)
    mount_volumes(plan, outside)
    for path in plan["hidden"]:
        if os.path.isdir(path):
            k.mount("hidden", path, "tmpfs", HARMLESS | k.MS_RDONLY, "mode=000,size=0")
        elif os.path.exists(path):
            k.mount("/dev/null", path, None, k.MS_BIND)


def write_names(plan):
    """hostname, hosts and resolv.conf of its own, whatever the image has there (a symbolic link, often), but not in a
    volume, which is read-only and brings its own."""
    volumes = [os.path.realpath(volume["target"]) for volume in plan["volumes"]]
    try:
        os.makedirs("/etc", exist_ok=True)
        for name, text in plan["etc"].items():
            path = f"/etc/{name}"
            if any(os.path.commonpath([volume, os.path.realpath(path)]) == volume for volume in volumes):
                continue
            if os.path.lexists(path):
                os.unlink(path)
            fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o644)
            os.write(fd, text.encode())
            os.close(fd)
    except OSError:
        if not plan["userns"]:
            with blaming("image", "spec.image", f"its /etc cannot hold {', '.join(plan['etc'])}"):
                raise
    if not os.path.lexists("/tmp"):
        os.mkdir("/tmp")
        os.chmod("/tmp", 0o1777)


def open_groups(plan):
    """The folder in which the daemon makes its commands' groups, as a descriptor: no path leads there from inside, and
    who cannot open the daemon's descriptors (no command can) can neither leave a group nor change one. As it lies in its
    tree, and as what is handed over, which leads to no other folder: whoever may use the daemon's files can name its
    descriptors by /proc/self/fd."""
    if plan["cgroup_commands"] is None:
        return None
    folder = os.open(plan["cgroup_commands"], os.O_RDONLY | os.O_DIRECTORY)
    return folder, k.alone(folder)


def make_world(plan):
    """Returns what open_groups does."""
    outside = o.open_all(plan, [f"/dev/{name}" for name in NODES] if plan["userns"] else [])
    groups = open_groups(plan)
    make_root(plan, outside)
    mount_dev(plan, outside)
    mount_proc(plan)
    mount_sys(plan, outside)
    mount_own(plan, outside)
    k.unmount_detached(OLD)
    os.rmdir(OLD)
    k.mount(None, OWN, None, k.MS_REMOUNT | k.MS_NOSUID | k.MS_NODEV | k.MS_RDONLY, "mode=755,size=64k")
    write_names(plan)
    return groups


def start_entrypoint(entrypoint):
    """The image's own program, beside the daemon and a child of it. That it cannot be run is told in the log only."""
    if os.fork() != 0:
        return
    try:
        os.setsid()
        os.chdir(entrypoint["cwd"])
        os.execvpe(entrypoint["argv"][0], entrypoint["argv"], entrypoint["env"])
    except OSError as e:
        os.write(2, f"entrypoint {entrypoint['argv'][0]}: {e.strerror}\n".encode())
    finally:
        os._exit(127)


def run(plan, errors, log):
    """Never returns: becomes the daemon, or writes why not to `errors` and exits."""
    try:
        os.setsid()
        for n in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD, signal.SIGINT):
            signal.signal(n, signal.SIG_DFL)
        os.umask(0o022)
        os.dup2(log, 1)
        os.dup2(log, 2)
        enter(plan)
        groups = make_world(plan)
        # The sandbox's own: what was opened outside is the machine's, and has its mode and owner.
        os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
        for folder in plan["make_folders"]:
            what = f"the working folder {folder['path']} is not there and cannot be made"
            with blaming(folder["kind"], folder["field"], what):
                os.makedirs(folder["path"], exist_ok=True)
        home = usable(become(plan, groups))
        # The kernel clears this at each change of credentials, so it comes last. A supervisor that died before is
        # seen by its end of the pipe.
        k.prctl(k.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.write(errors, b"+")
        if plan["entrypoint"]:
            start_entrypoint(plan["entrypoint"])
        bootstrap = {**plan["bootstrap"]}
        bootstrap["env"] = {"HOME": home, **bootstrap.get("env", {})}
        env = {**plan["env"], "SANDMESH_BOOTSTRAP": json.dumps(bootstrap, ensure_ascii=False)}
        if groups is not None:
            os.set_inheritable(groups[1], True)
            env["SANDMESH_COMMANDS_CGROUP"] = str(groups[1])
        os.execve(plan["argv"][0], plan["argv"], env)
    except Refused as e:
        report(errors, e.kind, 0, str(e), e.field)
    except OSError as e:
        report(errors, "system", e.errno or 0, f"{e.strerror}{': ' + str(e.filename) if e.filename else ''}")
    except BaseException as e:  # a fault of ours: it must reach the pool, not be lost
        report(errors, "fault", 0, repr(e))
    os._exit(127)


def report(errors, kind, number, message, field=None):
    said = {"kind": kind, "errno": number, "message": message[:1500], "field": field}
    os.write(errors, json.dumps(said).encode())
